"""``Runtime``: front and core in one object, the backend of this process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import difflib
import logging
import os
import secrets
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import store, wire
from .address import parse
from .backend import Listener
from .core.memory import MIN_TOKENS
from .dispatch import Dispatch, packed
from .errors import BackendClosed, BackendError, InvalidValue
from .front.core_process import CoreCommand, CoreProcesses
from .front.front import Front
from .front.session import Session
from .front.settings import ServedModel, Settings
from .front.transport import Transport
from .models.card import read_card
from .protocol import Abort, Action, Batch, Fragment, FrontMessage, Info, Lost
from .tokenizer import load_tokenizer

log = logging.getLogger(__name__)

_MODES = ("auto", "reference", "exact")
_OPTIONS = ("model", "mode", "threads", "kv_tokens", "address", "device")
#: What other engines call it, or why it is not here.
_ELSEWHERE = {
    "model_path": "it is called model here",
    "model_name": "it is called model here",
    "tokenizer_path": "leave it out: the tokenizer comes with the model",
    "max_total_tokens": "it is called kv_tokens here",
    "mem_fraction_static": "the KV pool's size is kv_tokens=",
    "tp_size": "leave it out: a model runs on one device",
    "dp_size": "leave it out: a model runs on one device",
    "port": "`plait serve --port` serves HTTP; address= serves programs",
    "host": "`plait serve --host` serves HTTP; address= serves programs",
}


class Runtime:
    """Loads a model into a core process and serves it to this process, and at ``address`` to others.

    ``model``: a GGUF file, a folder, a hub id, or None for the default model (fetched once). ``mode``: "exact" (bf16
    weights, fp32 accumulation; what "auto" takes) or "reference" (fp32). ``threads``: CPU threads of the core, by
    default one per core of the machine. ``device``: "cpu", "cuda", "cuda:1", or "auto" (CUDA where torch finds it).
    ``kv_tokens``: slots of the KV pool, 256 or more (or one context); by default a quarter of the available
    memory, at least two contexts where half of it holds them, at most 262,144. ``address``: ``ipc:///path`` or
    ``tcp://127.0.0.1:port``; beyond this machine ``tcp://host:port?curve=FILE``.

    A ``Backend`` (listeners run on a thread of its own) and a context manager. Raises ModelError, BackendError or
    InvalidValue if it cannot start. ``front`` and ``loop`` (the event loop that the front runs on) are for servers.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        mode: str | None = None,
        threads: int | None = None,
        kv_tokens: int | None = None,
        address: str | None = None,
        device: str | None = None,
        **others: object,
    ) -> None:
        refuse_others(others)
        mode = "auto" if mode is None else mode
        device = "auto" if device is None else device
        if mode not in _MODES:
            raise InvalidValue(f"mode must be one of {', '.join(_MODES)}, not {mode!r}", "mode")
        for name, value in (("threads", threads), ("kv_tokens", kv_tokens)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidValue(f"{name} must be a whole number of 1 or more, not {value!r}", name)
        if address is not None:
            parse(address)  # a bad one is said before anything is loaded
        path = store.resolve(model)
        card = read_card(path)
        least = min(MIN_TOKENS, card.config.context)
        if kv_tokens is not None and kv_tokens < least:
            raise InvalidValue(
                f"kv_tokens={kv_tokens} holds no chat: prompts and answers of all requests lie there. Use at least "
                f"{least}, or leave it out",
                "kv_tokens",
            )
        if card.config.cut is not None:
            log.warning("%s: %s", card.name, card.config.cut)
        served = ServedModel.of(card, load_tokenizer(card))
        settings = Settings()
        command = CoreCommand(path, "exact" if mode == "auto" else mode, kv_tokens, threads, device)
        self._begin(served, command, settings, address)

    def _begin(self, served: ServedModel, command: CoreCommand, settings: Settings, address: str | None) -> None:
        self._pid = os.getpid()
        self._dispatch = Dispatch()
        self._closed = False
        self._ready = threading.Event()
        self._failures: list[BaseException] = []  # of the start; at most one
        self._stop: asyncio.Event | None = None
        self._session: Session
        self.address = address
        self.loop = asyncio.new_event_loop()
        self.front = Front(served, CoreProcesses(command, settings.start_timeout), settings)
        self._thread = threading.Thread(target=self._run, name="plait-front", daemon=True)
        self._thread.start()
        _close_at_exit(self)
        try:
            self._ready.wait()
        except BaseException:  # Ctrl-C while the model loads
            self.close()
            raise
        if self._failures:
            self.close()
            raise self._failures[0]

    # ------------------------------------------------------------ Backend

    def allocate(self) -> int:
        return self._dispatch.allocate()

    def submit(self, actions: Sequence[Action], listener: Listener) -> None:
        """Also raises RequestError for what no client over a socket could send."""
        self._check()
        fragment, _ = packed(actions)
        self._dispatch.add(actions, listener)
        self._call(fragment)

    def abort(self, *, strand: int | None = None, program: int | None = None) -> None:
        self._check()
        self._call(Abort(strand, program))

    def info(self) -> Info:
        self._check()
        return self.front.info

    def close(self) -> None:
        """End every program with Lost, stop the core, free the address. Idempotent, from any thread."""
        if os.getpid() != self._pid:
            return  # a forked child must not end its parent's core
        self._closed = True
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self.loop.call_soon_threadsafe(self._set_stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    shutdown = close

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------ for servers and tests

    @property
    def core_pid(self) -> int | None:
        """Process id of the core of now; None while it is started again."""
        return self.front.epochs.pid

    def stats(self) -> wire.Stats:
        """The core's last word on itself (it speaks a few times a second, and when it falls idle)."""
        self._check()
        return self.front.stats

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise BackendError(
                "this Runtime was made before os.fork() and belongs to the parent process: "
                "make one here, or let both processes connect() to one address"
            )
        if self._closed:
            raise BackendClosed("the runtime was shut down")

    # ------------------------------------------------------------ the front's thread

    def _call(self, message: Fragment | Abort) -> None:
        try:
            self.loop.call_soon_threadsafe(self._session.receive, message)
        except RuntimeError as error:
            raise BackendClosed("the runtime was shut down") from error

    def _set_stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._main())
        finally:
            self._dispatch.end(Lost("shutdown", "the runtime was shut down"))
            self._ready.set()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        if self._closed:
            return
        transport = Transport(self.front, self.address) if self.address is not None else None
        starting = asyncio.ensure_future(self._start(transport))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            if starting.cancelled():
                return
            failure = starting.exception()
            if failure is not None:
                self._failures.append(failure)
            else:
                self._session = self.front.open_session(self._deliver, secrets.token_hex(16))
                self._ready.set()
                await stopped
        finally:
            stopped.cancel()
            if transport is not None:
                transport.close()
            await self.front.close()

    async def _start(self, transport: Transport | None) -> None:
        if transport is not None:
            transport.start()  # an address in use is said before a model is loaded
        await self.front.start()

    def _deliver(self, message: FrontMessage) -> None:
        if isinstance(message, Batch):
            self._dispatch.take(message.events)
        elif isinstance(message, Lost):
            self._dispatch.end(message)


def refuse_others(others: Mapping[str, object]) -> None:
    """Raises TypeError for keywords that a Runtime does not have, with the way out."""
    for name, value in others.items():
        if name in _ELSEWHERE and value is None:
            continue
        near = difflib.get_close_matches(name, _OPTIONS, 1)
        hint = _ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else f"it takes {', '.join(_OPTIONS)}")
        raise TypeError(f"Runtime() got an unexpected keyword argument {name!r}; {hint}")


def _close_at_exit(runtime: Runtime) -> None:
    reference = weakref.ref(runtime)

    def close() -> None:
        found = reference()
        if found is not None:
            found.close()

    atexit.register(close)
