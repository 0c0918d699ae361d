"""A run's seed expands to hash(run seed, fork path, op), so branches and gens of one run differ."""

from __future__ import annotations

import secrets
from hashlib import blake2b


def draw() -> int:
    """A fresh run seed (63 bits, so that it fits every JSON reader's signed integer)."""
    return secrets.randbits(63)


def root_key(seed: int) -> bytes:
    return _hash(b"run", seed.to_bytes(16, "little", signed=True))


def child_key(parent: bytes, op: int, index: int) -> bytes:
    """Key of the ``index``-th child that the parent's Fork ``op`` makes."""
    return _hash(b"fork", parent + op.to_bytes(8, "little") + index.to_bytes(8, "little"))


def op_seed(key: bytes, op: int) -> int:
    """Seed of a gen or select without one of its own. 63 bits."""
    return int.from_bytes(_hash(b"op", key + op.to_bytes(8, "little"))[:8], "little") >> 1


def _hash(person: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=16, person=person).digest()
