"""The decoder: against transformers on the same weights, and against itself however a batch is cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import (
    encode_gguf,
    gguf_tensor_name,
    interleave,
    make_tiny_model,
    tiny_gguf_metadata,
    tiny_weights,
    write_tiny_gguf,
)

from plait.runtime.errors import ModelError
from plait.runtime.models.card import read_card
from plait.runtime.models.decoder import Decoder
from plait.runtime.models.interface import ForwardBatch
from plait.runtime.models.load import Mode, load_model
from plait.runtime.models.rope import frequencies

SLOTS = 256
RNG = np.random.default_rng(3)
PROMPT = RNG.integers(3, 512, size=50).tolist()


def loaded(path: Path, mode: Mode = "reference") -> Decoder:
    model = load_model(read_card(path), mode=mode)
    model.allocate(SLOTS)
    return model


def batch(*sequences: tuple[Sequence[int], int, Sequence[int]], logits: Sequence[int] | None = None) -> ForwardBatch:
    """Each sequence: (all its ids, how many already have KV, the slot of each id). ``logits`` None: every row."""
    new = [(ids[start:], list(range(start, len(ids))), slots[start:]) for ids, start, slots in sequences]

    def flat(lists: Sequence[Sequence[int]]) -> np.ndarray:
        return np.array([item for items in lists for item in items], dtype=np.int32)

    def starts(lists: Sequence[Sequence[int]]) -> np.ndarray:
        return np.cumsum([0, *map(len, lists)]).astype(np.int32)

    ids, positions, out = ([part[i] for part in new] for i in range(3))
    slots = [slots for _, _, slots in sequences]
    rows = flat(ids)
    return ForwardBatch(
        ids=rows,
        positions=flat(positions),
        out_slots=flat(out),
        query_starts=starts(ids),
        kv_slots=flat(slots),
        kv_starts=starts(slots),
        logit_rows=np.arange(len(rows), dtype=np.int32) if logits is None else np.array(logits, dtype=np.int32),
    )


def alone(model: Decoder, ids: Sequence[int]) -> torch.Tensor:
    return model.forward(batch((ids, 0, range(len(ids)))))


def greedy(model: Decoder, ids: Sequence[int], count: int) -> list[int]:
    """One prefill, then one row at a time."""
    ids, start = list(ids), 0
    for _ in range(count):
        logits = model.forward(batch((ids, start, range(len(ids)))))
        start = len(ids)
        ids.append(int(logits[-1].argmax()))
    return ids


def transformers_logits(folder: Path, ids: Sequence[int]) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([list(ids)])).logits[0]
    return logits


@pytest.fixture(scope="module")
def reference(tiny_model_path: Path) -> Decoder:
    return loaded(tiny_model_path)


# ---------------------------------------------------------------- against transformers


def test_logits_and_greedy_tokens_equal_transformers(tiny_model_path: Path, reference: Decoder) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(tiny_model_path, dtype=torch.float32).eval()
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        expected = theirs(ids).logits[0]
        tokens = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, min_new_tokens=64, do_sample=False
        )
    torch.testing.assert_close(alone(reference, PROMPT), expected, rtol=1e-4, atol=1e-4)
    # min_new_tokens forbids the end tokens; leave them out here too.
    mine, start = list(PROMPT), 0
    for _ in range(64):
        logits = reference.forward(batch((mine, start, range(len(mine)))))[-1].clone()
        logits[list(read_card(tiny_model_path).eos_ids)] = -torch.inf
        start = len(mine)
        mine.append(int(logits.argmax()))
    assert mine == tokens[0].tolist()


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3 rope": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
            }
        },
    ),
    "linear rope": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}}),
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "one kv head, wide heads": ("LlamaConfig", {"num_key_value_heads": 1, "head_dim": 32}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_decoder_equals_transformers(tiny_model_path: Path, tmp_path: Path, kind: str) -> None:
    import transformers

    name, entries = KINDS[kind]
    config = getattr(transformers, name)(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=512,
        **{"num_key_value_heads": 2, "max_position_embeddings": 256, "eos_token_id": 2, "bos_token_id": 0, **entries},
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # norms and biases of fresh models are 1 and 0, which would hide a forgotten one
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() == 1 else 0.2))
    model.save_pretrained(tmp_path)
    shutil.copy(tiny_model_path / "tokenizer.json", tmp_path)
    expected = transformers_logits(tmp_path, PROMPT)
    ours = loaded(tmp_path)
    torch.testing.assert_close(alone(ours, PROMPT), expected, rtol=1e-3, atol=1e-3)
    whole = greedy(ours, PROMPT, 3)
    assert whole[-1] == int(transformers_logits(tmp_path, whole[:-1])[-1].argmax())


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_1"])
def test_a_gguf_file_computes_what_its_weights_do(tiny_model_path: Path, tmp_path: Path, kind: str) -> None:
    """The folder with the file's own dequantized weights must give the file's logits: names, q/k order, all of it."""
    path = write_tiny_gguf(tmp_path, kind=kind)
    from plait.runtime.models.load import open_weights

    weights = open_weights(read_card(path))
    folder = Path(shutil.copytree(tiny_model_path, tmp_path / "folder"))
    save_file({name: weights.tensor(name).contiguous() for name in weights.names()}, folder / "model.safetensors")
    torch.testing.assert_close(alone(loaded(path), PROMPT), transformers_logits(folder, PROMPT), rtol=1e-4, atol=1e-4)


def test_a_gguf_file_in_full_precision_equals_the_folder(reference: Decoder, tmp_path: Path) -> None:
    torch.testing.assert_close(
        alone(loaded(write_tiny_gguf(tmp_path)), PROMPT), alone(reference, PROMPT), rtol=1e-5, atol=1e-5
    )


def tiny_tensors(extra: Sequence[tuple[str, np.ndarray, str]] = ()) -> list[tuple[str, np.ndarray, str]]:
    weights = tiny_weights(seed=0, layers=2, hidden=64, heads=4, kv_heads=2, vocab=512, ff=128)
    tensors = []
    for name, values in weights.items():
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2], 0)
        tensors.append((gguf_tensor_name(name), interleave(values, heads) if heads else values, "F32"))
    return [*tensors, *extra]


def test_llama3_scaling_as_gguf_files_store_it(tiny_model_path: Path, tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }  # fmt: skip
    folder = Path(shutil.copytree(tiny_model_path, tmp_path / "folder"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_scaling": scaling}))
    scaled, plain = read_card(folder).config, read_card(tiny_model_path).config
    divisors = (frequencies(plain) / frequencies(scaled)).numpy()
    path = tmp_path / "x.gguf"
    path.write_bytes(encode_gguf(tiny_gguf_metadata(), tiny_tensors([("rope_freqs.weight", divisors, "F32")])))
    torch.testing.assert_close(alone(loaded(path), PROMPT), alone(loaded(folder), PROMPT), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_shards_and_stored_dtypes(tiny_model_path: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    folder = Path(shutil.copytree(tiny_model_path, tmp_path / "folder"))
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, held in shards.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    torch.testing.assert_close(alone(loaded(folder), PROMPT), transformers_logits(folder, PROMPT), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- batches


def test_chunks_give_what_the_whole_gives(reference: Decoder) -> None:
    whole = alone(reference, PROMPT)
    slots = [200 - i for i in range(50)]
    parts = [reference.forward(batch((PROMPT[:end], start, slots[:end]))) for start, end in ((0, 7), (7, 8), (8, 50))]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-4)


def test_decode_and_prefill_share_a_batch(reference: Decoder) -> None:
    first, second = PROMPT[:20], PROMPT[20:]
    slots = np.random.default_rng(0).permutation(SLOTS).tolist()
    reference.forward(batch((first[:-1], 0, slots[:19])))
    mixed = reference.forward(batch((first, 19, slots[:20]), (second, 0, slots[20:50]), logits=[0, 30]))
    expected = torch.stack([alone(reference, first)[-1], alone(reference, second)[-1]])
    torch.testing.assert_close(mixed, expected, rtol=1e-4, atol=1e-4)


def test_a_prefix_shared_inside_one_step(reference: Decoder) -> None:
    """The second sequence computes its suffix only and sees slots that the first writes in the same batch."""
    prefix, one, two = PROMPT[:30], PROMPT[30:40], PROMPT[40:]
    shared = list(range(30))
    mixed = reference.forward(
        batch((prefix + one, 0, shared + list(range(30, 40))), (prefix + two, 30, shared + list(range(40, 50))))
    )
    torch.testing.assert_close(mixed[:40], alone(reference, prefix + one), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mixed[40:], alone(reference, prefix + two)[30:], rtol=1e-4, atol=1e-4)


def test_only_the_asked_rows_have_logits(reference: Decoder) -> None:
    whole = alone(reference, PROMPT)
    some = reference.forward(batch((PROMPT, 0, range(50)), logits=[3, 49]))
    torch.testing.assert_close(some, whole[[3, 49]], rtol=1e-4, atol=1e-4)
    none = reference.forward(batch((PROMPT[:49], 0, range(100, 149)), logits=[]))
    assert none.shape == (0, 512) and none.dtype == torch.float32
    after = reference.forward(batch((PROMPT, 49, range(100, 150))))  # the KV of the pass without logits is all there
    torch.testing.assert_close(after[0], whole[49], rtol=1e-4, atol=1e-4)


def test_exact_mode_stays_close(tiny_model_path: Path, reference: Decoder) -> None:
    exact = loaded(tiny_model_path, "exact")
    ids = greedy(reference, PROMPT, 150)
    ours, wanted = alone(exact, ids), alone(reference, ids)
    assert ours.dtype == torch.float32
    top = wanted.topk(2).values
    equal = ours.argmax(-1) == wanted.argmax(-1)
    assert equal[top[:, 0] - top[:, 1] > 0.5].all() and equal.float().mean() > 0.9
    kept, got = wanted.log_softmax(-1), ours.log_softmax(-1)
    assert (kept.exp() * (kept - got)).sum(-1).mean() < 0.01


def test_a_stray_index_is_refused_and_harms_nothing(reference: Decoder) -> None:
    before = alone(reference, PROMPT)

    def spoilt(name: str, value: int) -> ForwardBatch:
        made = batch((PROMPT[:4], 0, range(4)))
        getattr(made, name)[1] = value
        return made

    for name, value in [("ids", 512), ("ids", -1), ("positions", SLOTS), ("out_slots", SLOTS), ("kv_slots", -1)]:
        with pytest.raises(ValueError, match=f"{name} of the batch"):
            reference.forward(spoilt(name, value))
    with pytest.raises(ValueError, match="logit_rows"):
        reference.forward(batch((PROMPT[:4], 0, range(4)), logits=[4]))
    with pytest.raises(ValueError, match="disagree"):
        made = batch((PROMPT[:4], 0, range(4)))
        made.positions = made.positions[:3]
        reference.forward(made)
    with pytest.raises(ValueError, match="at least one row"):
        reference.forward(batch((PROMPT[:4], 4, range(4)), (PROMPT[:4], 0, range(4, 8))))
    after = reference.forward(batch((PROMPT, 49, range(50))))
    torch.testing.assert_close(after[0], before[49], rtol=1e-4, atol=1e-4)


def test_the_pool_is_made_once_and_its_size_is_told(tiny_model_path: Path) -> None:
    model = load_model(read_card(tiny_model_path), mode="exact")
    assert model.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2  # K and V, layers, heads, dimension, bytes
    assert (model.vocab_size, model.context_length) == (512, 2048)
    with pytest.raises(ValueError, match="at least one slot"):
        model.allocate(0)
    model.allocate(8)
    with pytest.raises(ValueError, match="already"):
        model.allocate(8)


@pytest.mark.parametrize("mode", ["reference", "exact"])
def test_the_pool_costs_memory_as_it_is_used(tiny_model_path: Path, mode: Mode) -> None:
    model = load_model(read_card(tiny_model_path), mode=mode)
    slots = 2**29 // model.kv_bytes_per_token  # 512 MiB
    resident = psutil.Process().memory_info
    before = resident().rss
    model.allocate(slots)
    cold = model.forward(batch((PROMPT, 0, range(50))))
    # The far end of the pool is as good as its beginning, and what lies between was never written.
    last = model.forward(batch((PROMPT, 0, range(slots - 50, slots))))
    torch.testing.assert_close(cold, last)
    assert resident().rss - before < 2**29 // 4


def test_a_pool_beyond_what_the_machine_gives_names_kv_tokens(tiny_model_path: Path) -> None:
    with pytest.raises(ModelError, match="kv_tokens"):
        load_model(read_card(tiny_model_path)).allocate(2**50)


# ---------------------------------------------------------------- what is wrong


def test_a_mode_or_thread_count_that_is_none(tiny_model_path: Path) -> None:
    card = read_card(tiny_model_path)
    with pytest.raises(ModelError, match="mode 'quick' is not known; use one of: reference, exact"):
        load_model(card, mode="quick")  # type: ignore[arg-type]  # what a user may type
    with pytest.raises(ModelError, match="threads is 0"):
        load_model(card, threads=0)


def test_weights_that_are_not_the_configs(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    path = folder / "model.safetensors"
    tensors = load_file(path)

    def refused(changed: dict[str, torch.Tensor], message: str) -> None:
        save_file(changed, path)
        with pytest.raises(ModelError, match=message) as caught:
            load_model(read_card(folder))
        assert str(folder) in str(caught.value)

    name = "model.layers.1.mlp.up_proj.weight"
    refused({k: v for k, v in tensors.items() if k != name}, f"lacks the tensor {name}")
    refused({**tensors, name: torch.zeros(128, 63)}, r"shape \(128, 63\), but the config asks for \(128, 64\)")
    refused({**tensors, "model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}, "does not account for")
    refused({**tensors, name: torch.zeros(128, 64, dtype=torch.int8)}, "type I8, which is not supported")


def test_gguf_tensors_that_are_not_the_configs(tmp_path: Path) -> None:
    def refused(tensors: list[tuple[str, np.ndarray, str]], message: str) -> None:
        path = tmp_path / "x.gguf"
        path.write_bytes(encode_gguf(tiny_gguf_metadata(), tensors))
        with pytest.raises(ModelError, match=message) as caught:
            load_model(read_card(path))
        assert str(path) in str(caught.value)

    norm = np.ones(64, np.float32)
    refused([item for item in tiny_tensors() if item[0] != "blk.1.attn_k.weight"], r"lacks the tensor .*1.*k_proj")
    refused(tiny_tensors([("blk.0.post_ffw_norm.weight", norm, "F32")]), "does not account for: blk.0.post_ffw_norm")
    odd = [(n, v[:5] if n == "blk.0.attn_q.weight" else v, kind) for n, v, kind in tiny_tensors()]
    refused(odd, r"q_proj.weight has the shape \(5, 64\)")
