"""Cards: what a folder or a GGUF file says about its model, and how it is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import (
    CHAT_TEMPLATE,
    ENDOFTEXT,
    IM_END,
    encode_gguf,
    tiny_gguf_metadata,
    tiny_vocabulary,
    write_tiny_gguf,
)

from plait.runtime.errors import ModelError
from plait.runtime.models.card import ModelCard, read_card
from plait.runtime.models.config import DecoderConfig, RopeScaling
from plait.runtime.runtime import Runtime


@pytest.fixture
def folder(tiny_model_path: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may spoil."""
    return Path(shutil.copytree(tiny_model_path, tmp_path / "model"))


def change(path: Path, **entries: Any) -> None:
    """Set (or with None: remove) entries of a JSON file."""
    data = json.loads(path.read_text())
    data.update(entries)
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def config_of(folder: Path, **entries: Any) -> DecoderConfig:
    change(folder / "config.json", **entries)
    return read_card(folder).config


def gguf_card(tmp_path: Path, **entries: tuple[str, Any]) -> ModelCard:
    """The card of a GGUF file with embeddings only, its metadata changed ("__" stands for ".")."""
    metadata = tiny_gguf_metadata()
    metadata.update({key.replace("__", "."): value for key, value in entries.items()})
    path = tmp_path / "changed.gguf"
    path.write_bytes(encode_gguf(metadata, [("token_embd.weight", np.ones((512, 64), np.float32), "F16")]))
    return read_card(path)


# ---------------------------------------------------------------- what is right


def test_a_folder(tiny_model_path: Path) -> None:
    card = read_card(tiny_model_path)
    assert card.format == "safetensors" and card.path == tiny_model_path and card.name == tiny_model_path.name
    assert card.config == DecoderConfig(
        architecture="llama", hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, feed_forward=128, vocab=512,
        context=2048, norm_eps=1e-5, rope_theta=10000.0,
    )  # fmt: skip
    assert card.tokenizer.tokenizer_json == tiny_model_path / "tokenizer.json"
    assert card.chat_template == CHAT_TEMPLATE
    assert (card.bos_id, card.eos_ids, card.add_bos) == (ENDOFTEXT, (IM_END, ENDOFTEXT), False)
    assert card.special_tokens["eos_token"] == "<|im_end|>"


def test_a_gguf_file_says_the_same_as_the_folder(tiny_model_path: Path, tmp_path: Path) -> None:
    folder, card = read_card(tiny_model_path), read_card(write_tiny_gguf(tmp_path))
    assert card.format == "gguf" and card.name == "tiny-F32"
    assert card.config.norm_eps == pytest.approx(folder.config.norm_eps)
    assert (card.config.heads, card.config.vocab, card.config.context) == (4, 512, 2048)
    assert (card.bos_id, card.eos_ids, card.add_bos) == (folder.bos_id, folder.eos_ids, folder.add_bos)
    assert card.chat_template == folder.chat_template and card.special_tokens == folder.special_tokens
    tokens, merges = tiny_vocabulary(512)
    assert list(card.tokenizer.tokens) == tokens and card.tokenizer.types[:4] == (3, 3, 3, 1)
    assert card.tokenizer.merges == tuple(f"{a} {b}" for a, b in merges)
    assert (card.tokenizer.model, card.tokenizer.pre) == ("gpt2", "gpt-2")


def test_reading_a_card_imports_no_torch(tiny_model_path: Path) -> None:
    code = (
        "import sys; from plait.runtime.models.card import read_card; read_card(sys.argv[1]); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(tiny_model_path)], check=True, timeout=60)


def test_rope_settings_of_every_generation(folder: Path) -> None:
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    }
    assert config_of(folder, rope_scaling=llama3).rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 256)
    assert config_of(folder, rope_scaling={"type": "linear", "factor": 2}).rope_scaling == RopeScaling("linear", 2.0)
    newest = {"rope_type": "default", "rope_theta": 500.0}
    config = config_of(folder, rope_theta=None, rope_scaling=None, rope_parameters=newest)
    assert config.rope_theta == 500.0 and config.rope_scaling is None


def test_mistral_stops_at_its_window(folder: Path) -> None:
    assert config_of(folder, model_type="mistral", sliding_window=512).context == 512
    change(folder / "config.json", sliding_window=None)
    assert config_of(folder, model_type="mistral").context == 2048


@pytest.mark.parametrize(
    ("settings", "context"),
    [
        ({"model_type": "mistral", "sliding_window": 512}, 512),
        ({"model_type": "mistral", "sliding_window": 8192}, 2048),
        ({"model_type": "llama", "sliding_window": 512}, 2048),
        ({"model_type": "qwen2", "sliding_window": 512}, 2048),  # not in use
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True, "max_window_layers": 1}, 512),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True, "max_window_layers": 28}, 2048),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 512,
                "use_sliding_window": True,
                "layer_types": ["full_attention", "sliding_attention"],
                "head_dim": 32,
            },
            512,
        ),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 512,
                "use_sliding_window": True,
                "layer_types": ["full_attention", "full_attention"],
                "head_dim": 32,
            },
            2048,
        ),
    ],
)
def test_a_sliding_window_in_use_cuts_the_context_and_says_so(
    folder: Path, settings: dict[str, Any], context: int
) -> None:
    config = config_of(folder, **settings)
    assert config.context == context
    if context == 2048:
        assert config.cut is None
    else:
        assert config.cut_from == 2048 and config.cut is not None
        assert "context of 2,048 tokens is cut to 512" in config.cut


def test_a_runtime_says_that_its_context_is_cut(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Runtime, "_begin", lambda self, *given: None)  # no core is needed
    Runtime(folder)
    assert caplog.records == []
    change(folder / "config.json", model_type="mistral", sliding_window=512)
    Runtime(folder)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "model: its context of 2,048 tokens is cut to 512" in record.getMessage()


def test_a_mistral_that_names_no_window_has_that_of_its_kind(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("sliding_window", None)
    (folder / "config.json").write_text(
        json.dumps({**settings, "model_type": "mistral", "max_position_embeddings": 32768})
    )
    assert (read_card(folder).config.context, read_card(folder).config.cut_from) == (4096, 32768)


def test_qwen_has_what_its_config_does_not_say(folder: Path) -> None:
    qwen2 = config_of(folder, model_type="qwen2", attention_bias=None)
    assert qwen2.qkv_bias and not qwen2.output_bias and not qwen2.qk_norm
    assert config_of(folder, model_type="qwen3", head_dim=32).qk_norm


def test_bos_from_the_post_processor_when_the_settings_are_silent(folder: Path) -> None:
    change(folder / "tokenizer_config.json", add_bos_token=None)
    assert not read_card(folder).add_bos
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]}
    change(folder / "tokenizer.json", post_processor={"type": "Sequence", "processors": [template]})
    assert read_card(folder).add_bos
    change(folder / "tokenizer_config.json", add_bos_token=False)
    assert not read_card(folder).add_bos


def test_chat_template_in_its_own_file_or_among_several(folder: Path) -> None:
    several = [{"name": "tool_use", "template": "A"}, {"name": "default", "template": "B"}]
    change(folder / "tokenizer_config.json", chat_template=several)
    assert read_card(folder).chat_template == "B"
    (folder / "chat_template.jinja").write_text("C")
    assert read_card(folder).chat_template == "C"
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=None)
    assert read_card(folder).chat_template is None


def test_special_tokens_written_as_objects(folder: Path) -> None:
    change(folder / "tokenizer_config.json", bos_token={"content": "<|im_start|>", "special": True})
    card = read_card(folder)
    assert card.special_tokens["bos_token"] == "<|im_start|>" and card.bos_id == 1


def test_only_a_tokenizer_is_needed_beside_config_and_weights(folder: Path) -> None:
    for name in ("generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    card = read_card(folder)
    assert card.eos_ids == (IM_END, ENDOFTEXT) and card.bos_id == ENDOFTEXT and card.chat_template is None


def test_gguf_ends_include_every_announced_one(tmp_path: Path) -> None:
    card = gguf_card(tmp_path, tokenizer__ggml__eot_token_id=("u32", 7))
    assert card.eos_ids == (IM_END, 7, ENDOFTEXT)


# ---------------------------------------------------------------- what is wrong


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent: no such file or folder; give the path"):
        read_card(tmp_path / "absent")


def test_one_file_of_a_folder(folder: Path) -> None:
    with pytest.raises(ModelError, match="give the folder that holds it"):
        read_card(folder / "model.safetensors")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"lacks {name}"):
        read_card(folder)


def test_only_pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="never loaded; convert them"):
        read_card(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("content", ["", "{", "[1]", "\udcff"])
def test_a_damaged_json_file(folder: Path, name: str, content: str) -> None:
    (folder / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ModelError, match=rf"{name}: .*download it again"):
        read_card(folder)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_type": "gpt_oss"}, "'gpt_oss' is not supported; use a model of one of: llama"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized safetensors"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"hidden_size": "64"}, "hidden_size is '64', not an integer"),
        ({"num_hidden_layers": 10**9}, "layer count"),
        ({"num_hidden_layers": -1}, "layer count"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, "cannot share 3"),
        ({"head_dim": 15}, "even head dimension"),
        ({"max_position_embeddings": 2**60}, "context length"),
        ({"vocab_size": 0}, "vocabulary size"),
        ({"rms_norm_eps": -1.0}, "norm epsilon"),
        ({"rope_theta": float("nan")}, "rope theta"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, "lacks factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "must be above 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"tie_word_embeddings": "yes"}, "not true or false"),
        ({"eos_token_id": 9999}, "9999 is outside the 512"),
    ],
)
def test_a_config_we_cannot_run(folder: Path, entries: dict[str, Any], message: str) -> None:
    change(folder / "config.json", **entries)
    with pytest.raises(ModelError, match=message) as caught:
        read_card(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"general__architecture": ("str", "mamba")}, "'mamba' is not supported"),
        ({"llama__expert_count": ("u32", 8)}, "mixture-of-experts"),
        ({"llama__rope__scaling__type": ("str", "yarn")}, "'yarn' is not supported"),
        ({"llama__rope__dimension_count": ("u32", 8)}, "partly rotated"),
        ({"llama__block_count": ("u32", 2**32 - 1)}, "layer count"),
        ({"llama__block_count": ("str", "2")}, "not an integer"),
        ({"llama__attention__head_count": ("u32", 0)}, "head_count is 0"),
        ({"llama__attention__head_count_kv": ("u32", 0)}, "key/value head count"),
        ({"tokenizer__ggml__model": ("str", "bert")}, "'bert' is not supported"),
        ({"tokenizer__ggml__tokens": ("[]str", [])}, "no vocabulary"),
        ({"tokenizer__ggml__tokens": ("str", "a")}, "no list of str"),
        ({"tokenizer__ggml__tokens": ("[]str", ["a"] * 513)}, "embeddings for only 512|entries for 513"),
        ({"tokenizer__ggml__token_type": ("[]i32", [1])}, "token_type has 1 entries for 512"),
        ({"tokenizer__ggml__eos_token_id": ("u32", 512)}, "eos_token_id is 512, outside"),
    ],
)
def test_gguf_metadata_we_cannot_run(tmp_path: Path, entries: dict[str, tuple[str, Any]], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        gguf_card(tmp_path, **entries)
    assert "changed.gguf" in str(caught.value)


SHARDS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda index: index.write_text("{"), "no index"),
    (lambda index: index.write_text("[]"), "no index"),
    (lambda index: index.write_text('{"weight_map": {}}'), "names no shards"),
    (lambda index: index.write_text('{"weight_map": {"a": "part-2.safetensors"}}'), "lacks the shard part-2"),
    (lambda index: index.write_text('{"weight_map": {"a": "../model.safetensors"}}'), "no plain file name"),
    (lambda index: index.write_text('{"weight_map": {"a": 3}}'), "no plain file name"),
]


@pytest.mark.parametrize(("spoil", "message"), SHARDS)
def test_a_damaged_index(folder: Path, spoil: Callable[[Path], Any], message: str) -> None:
    spoil(folder / "model.safetensors.index.json")
    with pytest.raises(ModelError, match=message):
        read_card(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_cut_safetensors_file(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read .*download it again"):
        read_card(folder)
