"""The mask cache: bounded, and a constraint that is gone leaves nothing in it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from plait.constrained.compiler import build
from plait.constrained.lexicon import Lexicon
from plait.constrained.masks import MaskCache
from plait.constrained.pushdown.native_library import available
from plait.constrained.report import single_bytes


def test_the_least_recently_used_go_first() -> None:
    cache = MaskCache(3 * 40)
    masks = {key: cache.get(key, lambda: np.zeros(10, np.uint32)) for key in range(3)}
    assert cache.find(0) is masks[0]
    cache.get(3, lambda: np.zeros(10, np.uint32))
    assert cache.find(1) is None
    assert cache.find(0) is masks[0]
    assert cache.nbytes == 120
    cache.forget({7: 0, 8: 0, 9: 77})
    assert cache.find(0) is None
    assert cache.nbytes == 80


@pytest.mark.skipif(not available(), reason="the reference machine leaves its masks to the bound")
def test_masks_go_with_their_constraint() -> None:
    vocabulary = single_bytes()
    lexicon = Lexicon(vocabulary)
    constraint = build({"regex": "[ab]{3}c"}, vocabulary, "k", lexicon)
    matcher = constraint.matcher()
    matcher.mask()
    kept = matcher.mask()
    assert lexicon.masks.nbytes > 0
    del constraint, matcher
    gc.collect()
    assert lexicon.masks.nbytes == 0
    assert kept.any(), "who has a mask keeps it"
