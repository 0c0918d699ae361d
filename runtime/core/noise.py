"""Random numbers that depend on nothing but their key (seed, choice, position).

A counter-based generator has no state to carry: the same key gives the same number in any batch, after any
retraction and after a replay. Each part of the key is added to a running 64-bit word, which then goes through the
finalizer of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014)::

    word = mix(seed + G)      word = mix((word ^ choice) + G)      word = mix((word ^ position) + G)
    uniform = top 53 bits of word / 2**53                          G = 2**64 / golden ratio, odd

mix is a bijection, so keys that differ in one part only never collide.

A draw from a vocabulary takes one number for each token, see :func:`token_noise`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_UNIT = 2.0**-53


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits. Arguments count modulo 2**64, so negative seeds are fine."""
    return (word(seed, choice, position) >> 11) * _UNIT


def word(seed: int, choice: int, position: int) -> int:
    """The 64 random bits behind :func:`uniform`."""
    return _mix(_mix(_mix(seed) ^ (choice & _MASK)) ^ (position & _MASK))


def _mix(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def token_noise(key: int, ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """32 random bits for each token, a function of ``key`` (:func:`word`) and its id alone; the upper ones are better.

    Multiply and xorshift as in a 32-bit finalizer (constants by Wellons' hash prospector), with one half of the key
    before them and the other in their middle. For one key it is a bijection of ids.
    """
    bits = ids ^ np.uint32(key & 0xFFFFFFFF)
    bits *= np.uint32(0x9E3779B1)
    spare = bits >> np.uint32(16)
    bits ^= spare
    bits *= np.uint32(0x21F0AAAD)
    np.right_shift(bits, np.uint32(15), out=spare)
    bits ^= spare
    bits ^= np.uint32(key >> 32)
    bits *= np.uint32(0xD35A2D97)
    return bits
