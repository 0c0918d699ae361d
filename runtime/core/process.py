"""The core as a process: build the core, tell the front Ready (or Fatal), loop."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import logging

import zmq

from ...constrained.compiler import warm
from ...constrained.lexicon import lexicon_of
from ..errors import ModelError
from ..models.card import read_card
from ..models.load import load_model
from ..tokenizer import load_tokenizer
from ..wire import CoreEvent, Fatal, Ready, ToFront, encode
from .core import Core
from .loop import Loop
from .memory import available_bytes, plan
from .settings import CoreSettings

log = logging.getLogger("plait.core")

_FAREWELL_MS = 2000  # how long a last Fatal may take to leave


def serve(options: argparse.Namespace) -> int:
    """Returns the exit status."""
    logging.basicConfig(level=options.log_level.upper(), format="plait core: %(levelname)s %(message)s")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(options.connect)
    try:
        core, ready = build(options)
        _say(socket, ready)
        Loop(core, socket, options.pipe).run()
        return 0
    except Exception as error:  # the last stand: the front must learn why the core dies
        if not isinstance(error, ModelError):
            log.exception("the core cannot go on")
        socket.setsockopt(zmq.LINGER, _FAREWELL_MS)
        _say(socket, Fatal(str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"))
        return 1
    finally:
        socket.close()
        context.term()


def build(options: argparse.Namespace) -> tuple[Core, Ready]:
    """Model, vocabulary and pool. Raises ModelError."""
    card = read_card(options.model)
    device = choose_device(options.device)
    model = load_model(card, mode=options.mode, device=device, threads=options.threads)
    cuda = device.startswith("cuda")
    tokens, note = plan(
        available_bytes(device),
        model.kv_bytes_per_token,
        model.context_length,
        asked=options.kv_tokens,
        before=options.kv_before,
        shared=not cuda,
    )
    settings = CoreSettings(kv_tokens=tokens)
    if cuda:  # which is not busy with a few hundred rows
        settings = dataclasses.replace(settings, step_tokens=8192, mixed_tokens=2048, forward_rows=256.0)
    if options.step_tokens is not None:
        settings = dataclasses.replace(settings, step_tokens=options.step_tokens)
    model.allocate(tokens)
    vocabulary = load_tokenizer(card).vocabulary
    vocabulary.encode(b"a")  # what is made at first use must not make the first constrained step late
    lexicon_of(vocabulary)
    warm()
    core = Core(model, vocabulary, settings)
    gc.collect()
    gc.freeze()  # weights and code live as long as we do; the collector need not walk them
    # A full collection walks every state of every constraint (0.2 s for a million objects): seldom, and when idle.
    gc.set_threshold(5_000, 20, 200)
    ready = Ready(
        kv_tokens=tokens,
        vocab_size=model.vocab_size,
        context_length=model.context_length,
        mode=options.mode,
        device=device,
        kernels=model.kernels.name,
        notes=() if note is None else (note,),
    )
    return core, ready


def choose_device(name: str) -> str:
    """CUDA for "auto" where torch finds it, else the CPU. Raises ModelError for a device that is not there."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise ModelError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
    return name


def _say(socket: zmq.Socket[bytes], event: CoreEvent) -> None:
    """Ready and Fatal are single frames; the queue of a fresh socket takes them without a peer."""
    socket.send(encode(ToFront((event,))))
