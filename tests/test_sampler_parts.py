"""The sampler's parts: filters, the draw and the noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.runtime.core.filters import draw, keep_min_p, keep_top_k, keep_top_p
from plait.runtime.core.noise import token_noise, uniform, word


def ranked(values: np.ndarray) -> np.ndarray:
    return np.argsort(-values, kind="stable")


# Integers: sums are exact in any order, so the filters must agree with a full sort to the last element.
whole_weights = st.lists(st.integers(0, 50), min_size=1, max_size=60).map(lambda v: np.array(v, dtype=np.float32))


@given(values=whole_weights, k=st.integers(1, 70))
def test_top_k_is_a_full_sort(values: np.ndarray, k: int) -> None:
    assert keep_top_k(values, k).tolist() == sorted(ranked(values)[:k].tolist())


def nucleus(weights: np.ndarray, share: float) -> list[int]:
    order = ranked(weights)
    sums = np.cumsum(weights[order].astype(np.float64))
    count = int(np.searchsorted(sums, share * sums[-1], side="left")) + 1
    return sorted(order[:count].tolist())


@given(weights=whole_weights.filter(lambda w: w.max() > 0), eighths=st.integers(1, 7))
def test_top_p_is_a_full_sort(weights: np.ndarray, eighths: int) -> None:
    assert keep_top_p(weights, eighths / 8).tolist() == nucleus(weights, eighths / 8)


@pytest.mark.parametrize("shape", ["flat", "peaked", "two values", "one heavy"])
@pytest.mark.parametrize("share", [0.001, 0.125, 0.5, 0.875, 0.999])
def test_top_p_of_a_large_row(shape: str, share: float) -> None:
    n, rng = 20_000, np.random.default_rng(5)
    weights = {
        "flat": np.ones(n),
        "peaked": np.floor(2.0 ** (rng.random(n) * 12)),
        "two values": rng.integers(1, 3, n) * 4.0,
        "one heavy": np.where(np.arange(n) == 777, 100_000.0, 1.0),
    }[shape].astype(np.float32)
    assert keep_top_p(weights, share).tolist() == nucleus(weights, share)


@given(weights=whole_weights.filter(lambda w: w.max() > 0), quarters=st.integers(0, 4))
def test_min_p(weights: np.ndarray, quarters: int) -> None:
    share = quarters / 4
    assert keep_min_p(weights, share).tolist() == [i for i, w in enumerate(weights) if w >= share * weights.max()]


@settings(max_examples=60)
@given(size=st.sampled_from([1, 5, 256, 5000]), seed=st.integers(0, 99), key=st.integers(0, 2**64 - 1))
def test_draw_is_a_race(size: int, seed: int, key: int) -> None:
    """Each arrives after an exponential time over its weight; the first is drawn."""
    rng = np.random.default_rng(seed)
    weights = (rng.integers(0, 3, size) * rng.integers(0, 2, size) * rng.random(size)).astype(np.float32)
    weights[rng.integers(size)] = 1
    noise = token_noise(key, np.arange(size, dtype=np.uint32))
    uniform = (noise.astype(np.float64) + 0.5) / 2**32
    with np.errstate(divide="ignore"):
        arrival = np.where(weights > 0, -np.log1p(-uniform) / weights, np.inf)
    index = draw(weights, noise)
    assert weights[index] > 0
    assert arrival[index] <= arrival.min() * (1 + 1e-12)


def test_draw_with_the_noise_at_its_ends() -> None:
    for value in (0, 2**32 - 1):
        noise = np.full(3000, value, dtype=np.uint32)
        weights = np.zeros(3000, dtype=np.float32)
        weights[[7, 2000]] = 0.25, 1e-30
        assert draw(weights, noise) == 7
        assert draw(weights[2000:], noise[2000:]) == 0


# ---------------------------------------------------------------- noise


def test_noise_is_fixed_forever() -> None:
    """A change here changes every seeded output: these came from the first version."""
    assert [word(0, 0, 0), word(1, 0, 0), word(0, 1, 0), word(0, 0, 1), word(-1, 3, 5)] == [
        2558736989570252433,
        12793040940332582595,
        4964578127960768432,
        3400964856525257824,
        1282242150923538568,
    ]


def test_noise_of_the_published_generator() -> None:
    """splitmix64 seeded with 0 starts with these words (Vigna's reference code)."""
    from plait.runtime.core import noise

    assert noise._mix(0) == 0xE220A8397B1DCDAF
    assert noise._mix(noise._GOLDEN) == 0x6E789E6AA1B965F4


def test_noise_is_even_and_uncorrelated_along_every_part_of_the_key() -> None:
    n = 4096
    streams = {
        "position": np.array([uniform(3, 0, p) for p in range(n)]),
        "choice": np.array([uniform(3, c, 0) for c in range(n)]),
        "seed": np.array([uniform(s, 0, 0) for s in range(n)]),
    }
    for name, values in streams.items():
        assert values.min() >= 0 and values.max() < 1, name
        counts = np.histogram(values, bins=16, range=(0, 1))[0]
        chi = float(((counts - n / 16) ** 2 / (n / 16)).sum())
        assert chi < 37.7, f"{name}: {chi} (15 degrees of freedom, once in 1,000)"
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.06, name
    assert abs(np.corrcoef(streams["position"], streams["seed"])[0, 1]) < 0.06


def test_token_noise_is_fixed_forever() -> None:
    assert token_noise(word(1, 2, 3), np.array([0, 1, 49_151], dtype=np.uint32)).tolist() == [
        4101350967,
        201904674,
        2861455203,
    ]
    part = np.array([3, 77, 500], dtype=np.uint32)  # a token's noise does not depend on what stands beside it
    assert token_noise(9, part).tolist() == token_noise(9, np.arange(501, dtype=np.uint32))[part].tolist()


def test_token_noise_is_even_and_uncorrelated() -> None:
    ids = np.arange(4096, dtype=np.uint32)
    table = np.array([token_noise(word(5, 0, position), ids) for position in range(256)]) / 2**32
    for name, values in (("ids", table[0]), ("positions", table[:, 0]), ("all", table.ravel())):
        counts = np.histogram(values, bins=16, range=(0, 1))[0]
        expected = len(values) / 16
        assert float(((counts - expected) ** 2 / expected).sum()) < 37.7, name
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.005
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.005


def test_keys_do_not_collide() -> None:
    words = {word(s, c, p) for s in range(-8, 24) for c in range(16) for p in range(32)}
    assert len(words) == 32 * 16 * 32
