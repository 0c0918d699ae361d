"""What a model is, read without loading its weights and without torch: shape, tokenizer source, template, ends."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..errors import ModelError
from .config import DecoderConfig, config_from_gguf, config_from_json
from .gguf import GGUFFile
from .safetensors_ import SafetensorsWeights

# Tokens that end a turn or a document wherever they are special. Models often announce only one of those they emit.
END_TOKENS = (
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "</s>",
)  # fmt: skip

_CONTROL = 3  # GGUF token type of a special token


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """Where the tokenizer comes from: a tokenizer.json, or the vocabulary that a GGUF file carries.

    Of a GGUF: ``model`` is "gpt2" (byte-level BPE) or "llama" (SentencePiece), ``pre`` names the pre-tokenizer,
    ``tokens`` in order of id, ``types`` per token (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte),
    ``scores`` per token (SentencePiece), ``merges`` as "left right" (BPE).
    """

    tokenizer_json: Path | None = None
    model: str = ""
    pre: str = ""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    types: tuple[int, ...] = field(default=(), repr=False)
    scores: tuple[float, ...] = field(default=(), repr=False)
    merges: tuple[str, ...] = field(default=(), repr=False)
    add_space_prefix: bool = False


@dataclass(frozen=True, slots=True)
class ModelCard:
    """``eos_ids``: every id that ends a turn, the announced ones first; empty if the files name none.

    ``special_tokens``: "bos_token", "eos_token" and such -> text. ``name`` is the file's or folder's name.
    ``config.vocab`` may exceed the tokenizer's tokens (padded rows).
    """

    name: str
    path: Path
    format: Literal["gguf", "safetensors"]
    config: DecoderConfig
    tokenizer: TokenizerSource
    chat_template: str | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool
    special_tokens: dict[str, str]


def read_card(path: str | Path) -> ModelCard:
    """The card of a GGUF file, or of a folder with config.json, tokenizer.json and safetensors weights.

    Raises ModelError, naming the path and the fix, if it is missing, damaged or of a kind we cannot run.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise ModelError(f"{path}: no such file or folder; give the path of a GGUF file or of a model folder")
    if path.suffix in (".safetensors", ".json"):
        raise ModelError(f"{path}: is one file of a model; give the folder that holds it")
    return _read_gguf(path)


# ---------------------------------------------------------------- GGUF


def _read_gguf(path: Path) -> ModelCard:
    file = GGUFFile(path)
    config = config_from_gguf(file)
    source = _gguf_tokenizer(file)
    if len(source.tokens) > config.vocab:
        raise ModelError(
            f"{path}: {len(source.tokens)} tokens, but embeddings for only {config.vocab}; the file is damaged"
        )
    bos_id = _gguf_id(file, "bos")
    announced = [_gguf_id(file, name) for name in ("eos", "eot", "eom")]
    listed = [n for n, kind in enumerate(source.types) if kind == _CONTROL and source.tokens[n] in END_TOKENS]
    template = file.metadata.get("tokenizer.chat_template")
    special = {
        f"{name}_token": source.tokens[number]
        for name in ("bos", "eos", "unknown", "padding")
        if (number := _gguf_id(file, name)) is not None
    }
    for ours, theirs in (("unk_token", "unknown_token"), ("pad_token", "padding_token")):
        if theirs in special:
            special[ours] = special.pop(theirs)
    # Without the key, the pre-tokenizers of Llama 3 and all SentencePiece models begin with BOS.
    default_bos = source.model == "llama" or source.pre in ("llama-bpe", "llama-v3", "llama3")
    add_bos = file.metadata.get("tokenizer.ggml.add_bos_token", default_bos)
    return ModelCard(
        name=path.stem,
        path=path,
        format="gguf",
        config=config,
        tokenizer=source,
        chat_template=template if isinstance(template, str) else None,
        bos_id=bos_id,
        eos_ids=_ends(path, [n for n in announced if n is not None] + listed, config),
        add_bos=bool(add_bos) and bos_id is not None,
        special_tokens=special,
    )


def _gguf_tokenizer(file: GGUFFile) -> TokenizerSource:
    tokens = _gguf_list(file, "tokens", str)
    if not tokens:
        raise ModelError(f"{file.path}: holds no vocabulary (tokenizer.ggml.tokens); use a complete GGUF file")
    model = file.metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise ModelError(f"{file.path}: the tokenizer {model!r} is not supported; use a model with 'gpt2' or 'llama'")
    types = _gguf_list(file, "token_type", int) or (1,) * len(tokens)
    scores = _gguf_list(file, "scores", float)
    for name, values in (("token_type", types), ("scores", scores)):
        if values and len(values) != len(tokens):
            raise ModelError(
                f"{file.path}: tokenizer.ggml.{name} has {len(values)} entries for {len(tokens)} tokens; "
                "the file is damaged, download it again"
            )
    pre = file.metadata.get("tokenizer.ggml.pre", "default")
    return TokenizerSource(
        model=str(model),
        pre=str(pre),
        tokens=tokens,
        types=types,
        scores=scores,
        merges=_gguf_list(file, "merges", str),
        add_space_prefix=bool(file.metadata.get("tokenizer.ggml.add_space_prefix", model == "llama")),
    )


_T = TypeVar("_T", str, int, float)


def _gguf_list(file: GGUFFile, name: str, kind: type[_T]) -> tuple[_T, ...]:
    values = file.metadata.get(f"tokenizer.ggml.{name}", [])
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ModelError(f"{file.path}: tokenizer.ggml.{name} is no list of {kind.__name__}; download the file again")
    return tuple(value for value in values if isinstance(value, kind))


def _gguf_id(file: GGUFFile, name: str) -> int | None:
    value = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if value is None:
        return None
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else 0
    if not isinstance(value, int) or not 0 <= value < count:
        raise ModelError(
            f"{file.path}: tokenizer.ggml.{name}_token_id is {value!r}, outside the {count} tokens; download it again"
        )
    return value


# ---------------------------------------------------------------- folder


def _read_folder(folder: Path) -> ModelCard:
    data = _read_json(folder, "config.json")
    config = config_from_json(str(folder / "config.json"), data)
    tokenizer_path = folder / "tokenizer.json"
    tokenizer = _read_json(folder, "tokenizer.json")
    settings = _read_json(folder, "tokenizer_config.json", required=False)
    generation = _read_json(folder, "generation_config.json", required=False)
    SafetensorsWeights(folder, framework="numpy")  # a missing or cut shard is better told here than in the core
    special_ids = _special_ids(tokenizer_path, tokenizer)
    special = _special_tokens(folder, settings)
    bos_id = special_ids.get(special.get("bos_token", ""))
    if bos_id is None:
        bos_id = next(iter(_ids(generation.get("bos_token_id")) + _ids(data.get("bos_token_id"))), None)
    announced = _ids(generation.get("eos_token_id")) + _ids(data.get("eos_token_id"))
    if special.get("eos_token") in special_ids:
        announced.append(special_ids[special["eos_token"]])
    listed = [special_ids[text] for text in END_TOKENS if text in special_ids]
    add_bos = settings.get("add_bos_token")
    if add_bos is None:
        add_bos = _begins_with(tokenizer.get("post_processor"), special.get("bos_token"))
    return ModelCard(
        name=folder.resolve().name,
        path=folder,
        format="safetensors",
        config=config,
        tokenizer=TokenizerSource(tokenizer_json=tokenizer_path),
        chat_template=_chat_template(folder, settings),
        bos_id=bos_id,
        eos_ids=_ends(folder, announced + listed, config),
        add_bos=bool(add_bos) and bos_id is not None,
        special_tokens=special,
    )


def _read_json(folder: Path, name: str, *, required: bool = True) -> dict[str, Any]:
    path = folder / name
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not required:
            return {}
        raise ModelError(
            f"{folder}: lacks {name}; a model folder needs config.json, tokenizer.json and weights"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: no JSON, or no UTF-8
        raise ModelError(f"{path}: cannot be read ({error}); download it again") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path}: holds no JSON object; download it again")
    return data


def _special_ids(path: Path, tokenizer: dict[str, Any]) -> dict[str, int]:
    """Text -> id of the tokenizer's special tokens."""
    added = tokenizer.get("added_tokens", [])
    try:
        return {str(token["content"]): int(token["id"]) for token in added if token.get("special", False)}
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ModelError(f"{path}: added_tokens is not as a tokenizer.json has it; download it again") from error


def _special_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    merged = {**_read_json(folder, "special_tokens_map.json", required=False), **settings}
    special: dict[str, str] = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = merged.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            special[name] = text
    return special


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot be read ({error}); download it again") from error
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named templates
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _begins_with(post_processor: object, bos: str | None) -> bool:
    """Whether a tokenizer.json's post-processor puts ``bos`` before a single text."""
    if not isinstance(post_processor, dict) or bos is None:
        return False
    inner = post_processor.get("processors")
    if isinstance(inner, list):
        return any(_begins_with(item, bos) for item in inner)
    single = post_processor.get("single")
    if isinstance(single, list) and single and isinstance(single[0], dict):
        first = single[0].get("SpecialToken")
        return isinstance(first, dict) and first.get("id") == bos
    return False


# ---------------------------------------------------------------- both


def _ids(value: object) -> list[int]:
    """A token id, or a list of them, or nothing, as a list."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool) and item >= 0]


def _ends(path: Path, ids: list[int], config: DecoderConfig) -> tuple[int, ...]:
    for number in ids:
        if number >= config.vocab:
            raise ModelError(f"{path}: the end token {number} is outside the {config.vocab} tokens; download it again")
    return tuple(dict.fromkeys(ids))
