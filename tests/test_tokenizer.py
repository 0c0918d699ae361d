"""Text to ids for models of each file format, and what a typed special token becomes."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import write_tiny_gguf

from plait.runtime.errors import ModelError
from plait.runtime.gguf_tokenizer import tokenizer_json
from plait.runtime.models.card import read_card
from plait.runtime.tokenizer import Tokenizer, load_tokenizer

KINDS = [
    *["abc xyz ", "0123456789 .,", " \t\n\r\u3000\xa0", 'def f(x):\n    return {"a": [1]}', "日本語中文한국어。"],
    *["😀👩\u200d👧🇩🇪é", "e\u0301a\u0308\u200d\u202e", "".join(map(chr, range(32))) + "\x7f\x85", "I'm he'LL 's"],
    "<|im_end|>",
]


def texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    found = ["", " ", "  1", "Hello, world! <|im_end|> 123\n\n\tx"]
    for at in range(count):
        kinds = KINDS if at % 2 else [rng.choice(KINDS)]
        found.append("".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 40))))
    return found


@pytest.fixture(scope="module")
def tiny(tiny_model_path: Path) -> Tokenizer:
    return load_tokenizer(read_card(tiny_model_path))


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(read_card(write_tiny_gguf(tmp_path_factory.mktemp("gguf"))))


def test_folder_and_gguf_agree(tiny: Tokenizer, tiny_gguf: Tokenizer) -> None:
    assert tiny.vocabulary.hash == tiny_gguf.vocabulary.hash
    for text in texts(300):
        for special in (True, False):
            assert tiny.encode(text, special=special) == tiny_gguf.encode(text, special=special)


def test_a_text_has_at_least_so_many_ids(tiny: Tokenizer) -> None:
    for text in [*texts(300), "the " * 500, "<|im_end|>" * 9, "\ud800x"]:
        for special in (True, False):
            assert tiny.fewest(text) <= len(tiny.encode(text, special=special))
    assert tiny.fewest("x" * 1_000_000) > 10_000


@pytest.mark.parametrize(("normalizer", "known"), [("NFC", True), ("Strip", False)])
def test_a_normalizer_may_shorten_a_text(tiny: Tokenizer, normalizer: str, known: bool) -> None:
    step = {"type": normalizer, "strip_left": True, "strip_right": True} if normalizer == "Strip" else {"type": "NFC"}
    data = {**tiny._json, "normalizer": step}
    tokenizer = Tokenizer(data, size=tiny.size, bos_id=None, eos_ids=(2,), add_bos=False)
    assert (tokenizer.fewest("x" * 1_000_000) > 0) is known
    for text in ["\u1112\u1161\u11ab" * 400, " " * 4000, *texts(50)]:
        assert tokenizer.fewest(text) <= len(tokenizer.encode(text, special=False))


def test_every_text_comes_back(tiny: Tokenizer) -> None:
    vocabulary = tiny.vocabulary
    for text in texts(300):
        ids = tiny.encode(text, special=False)
        assert vocabulary.decode(ids) == text.encode()
        assert not set(ids) & vocabulary.special_ids
        assert vocabulary.encode(text.encode()) == ids


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=30))
def test_any_bytes_can_be_encoded(tiny: Tokenizer, data: bytes) -> None:
    assert tiny.vocabulary.decode(tiny.vocabulary.encode(data)) == data


def test_a_typed_special_token_is_its_characters(tiny: Tokenizer) -> None:
    end = tiny.special_tokens["<|im_end|>"]
    assert end in tiny.eos_ids
    assert tiny.encode("a<|im_end|>", special=True)[-1] == end
    typed = tiny.encode("a<|im_end|>", special=False)
    assert end not in typed
    assert tiny.vocabulary.decode(typed) == b"a<|im_end|>"
    assert tiny.vocabulary.bytes(end) == b""
    assert tiny.token_bytes(end) == b"<|im_end|>"


def test_unpaired_surrogates_do_not_break_a_request(tiny: Tokenizer) -> None:
    assert tiny.vocabulary.decode(tiny.encode("a\ud800b", special=False)) == "a\ufffdb".encode()
    assert tiny.vocabulary.decode(tiny.encode("\ud83d\ude00", special=False)) == "😀".encode()


def test_a_tokenizer_wider_than_the_model_is_refused(tiny_model_path: Path) -> None:
    data = json.loads((tiny_model_path / "tokenizer.json").read_text())
    with pytest.raises(ModelError, match="does not fit the model's 100 logits"):
        Tokenizer(data, size=100)
    padded = Tokenizer(data, size=600)
    assert padded.vocabulary.size == 600 and padded.token_bytes(599) == b""


def test_damaged_files_name_themselves(tiny_model_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_model_path.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    card = read_card(folder)
    for bad in ("{", "[]", '{"model": {"type": "BPE"}}'):
        (folder / "tokenizer.json").write_text(bad)
        with pytest.raises(ModelError, match=r"tokenizer\.json"):
            load_tokenizer(card)


# ---------------------------------------------------------------- GGUF kinds


def byte_level(merges: list[str], **fields: Any) -> dict[str, Any]:
    from tiny_model import byte_alphabet

    alphabet = byte_alphabet()
    tokens = [alphabet[b] for b in range(256)] + [merge.replace(" ", "") for merge in merges]
    return tokenizer_json(model="gpt2", tokens=tokens, token_types=None, merges=merges, **fields)


def pieces(data: dict[str, Any], text: str) -> list[str]:
    tokenizer = Tokenizer(data, size=400)
    return [tokenizer.token_bytes(token).decode() for token in tokenizer.encode(text, special=False)]


@pytest.mark.parametrize(
    "pre, expected",
    [
        ("gpt-2", ["a", " ", " 1", "23"]),  # one space joins the number
        ("smollm", ["a", "  ", "1", "2", "3"]),  # digits stand alone
        ("qwen2", ["a", " ", " ", "1", "2", "3"]),
        ("llama-bpe", ["a", " ", " ", "1", "23"]),
        (None, ["a", " ", " 1", "23"]),
    ],
)
def test_pre_tokenizers_cut_digits_and_spaces_their_own_way(pre: str | None, expected: list[str]) -> None:
    assert pieces(byte_level(["Ġ Ġ", "Ġ 1", "2 3"], pre=pre), "a  123") == expected


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(ModelError, match="'tekken' is not supported"):
        byte_level([], pre="tekken")
    with pytest.raises(ModelError, match="'rwkv' is not supported"):
        tokenizer_json(model="rwkv", tokens=["a"], token_types=None, merges=None)
    with pytest.raises(ModelError, match="merges is missing"):
        tokenizer_json(model="gpt2", tokens=["a"], token_types=None, merges=None)
    with pytest.raises(ModelError, match="scores is missing"):
        tokenizer_json(model="llama", tokens=["a"], token_types=None, merges=None)
    with pytest.raises(ModelError, match=r"'ab' in tokenizer\.ggml\.merges"):
        byte_level(["ab"])
    with pytest.raises(ModelError, match="2 token types for 1 tokens"):
        tokenizer_json(model="gpt2", tokens=["a"], token_types=[1, 1], merges=[])


@pytest.fixture(scope="module")
def sentence_piece() -> Tokenizer:
    words = ["▁", "a", "b", "ab", "▁a", "▁ab", "ba", "e"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    types = [2, 3, 3, *[6] * 256, *[1] * len(words)]
    scores = [0.0] * 259 + [-8.0, -9, -10, -3, -2, -1, -4, -5]
    return Tokenizer(
        tokenizer_json(model="llama", tokens=tokens, token_types=types, merges=None, scores=scores),
        size=len(tokens),
        bos_id=1,
        eos_ids=(2,),
        add_bos=True,
    )


def test_sentence_piece_spells_bytes_and_spaces(sentence_piece: Tokenizer) -> None:
    vocabulary = sentence_piece.vocabulary
    for text in [" ab", "ab ba", "é\n", "日本", "a  b", "<s>"]:
        ids = sentence_piece.encode(text, special=False)
        assert vocabulary.decode(ids) == text.encode()
        assert not set(ids) & {0, 1, 2}
    assert [sentence_piece.token_bytes(t) for t in sentence_piece.encode(" ab", special=False)] == [b" ab"]
    assert vocabulary.encode(b"\xc3") == [3 + 0xC3]


def test_the_dummy_space_comes_only_at_the_start_of_a_strand(sentence_piece: Tokenizer) -> None:
    assert sentence_piece.has_dummy_space
    assert sentence_piece.vocabulary.decode(sentence_piece.encode("ab", special=False, start=True)) == b" ab"
    assert sentence_piece.vocabulary.decode(sentence_piece.encode("ab", special=False)) == b"ab"
    assert sentence_piece.encode("", special=False, start=True) == []


def test_byte_level_has_no_dummy_space(tiny: Tokenizer) -> None:
    assert not tiny.has_dummy_space
    assert tiny.encode("ab", special=True, start=True) == tiny.encode("ab", special=True)


def test_a_tokenizer_that_cannot_spell_bytes_is_refused() -> None:
    data = {"model": {"type": "WordPiece", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}}
    data["model"].update(continuing_subword_prefix="##", max_input_chars_per_word=100)
    with pytest.raises(ModelError, match="WordPiece"):
        Tokenizer({"version": "1.0", "added_tokens": [], **data}, size=2)


@pytest.mark.real_model
def test_the_default_model_equals_transformers(default_model_path: Path) -> None:
    """transformers' conversion leaves the digit splitting of ``pre = smollm`` out; with it put back, all ids agree."""
    import tokenizers.pre_tokenizers as pre
    from transformers import AutoTokenizer

    ours = load_tokenizer(read_card(default_model_path))
    loaded: Any = AutoTokenizer.from_pretrained(default_model_path.parent, gguf_file=default_model_path.name)
    backend = loaded.backend_tokenizer
    without = [text for text in texts(500) if not any(a.isspace() and b.isnumeric() for a, b in pairwise(text))]
    for text in without:
        assert ours.encode(text, special=True) == backend.encode(text, add_special_tokens=False).ids, text
    backend.pre_tokenizer = pre.Sequence([pre.Digits(True), pre.ByteLevel(add_prefix_space=False)])
    for text in texts(500):
        assert ours.encode(text, special=True) == backend.encode(text, add_special_tokens=False).ids, text
