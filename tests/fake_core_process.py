"""The fake core as a process: what CoreProcess starts in tests. ``--model`` says how it behaves.

``fatal``: says Fatal and ends. ``broken``: dies with a line on stderr. ``silent``: never becomes ready. Anything
else: the fake model, one step every few milliseconds, over the tiny tokenizer in that folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import zmq

from plait.runtime import wire
from plait.runtime.front.pump import SocketPump


async def main(options: argparse.Namespace) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.connect(options.connect)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(options.pipe, ended.set)

    def say(events: Sequence[wire.CoreEvent]) -> None:
        pump.send([wire.encode(wire.ToFront(events=tuple(events)))])

    def hear(frames: list[bytes]) -> None:
        items = wire.decode_to_core(frames[0]).items
        core.send(items)
        if core.dead:
            ended.set()

    pump = SocketPump(socket, hear)
    core: Any = None
    if options.model == "fatal":
        say([wire.Fatal("model.gguf: the file is cut short; fetch it again")])
        await asyncio.sleep(0.2)
        sys.exit(1)
    if options.model == "broken":
        print("Traceback: no such instruction", file=sys.stderr, flush=True)
        sys.exit(3)
    if options.model != "silent":
        # Only here: the cores that never start need none of it.
        from fake_core import FakeCore, FakeWorld

        from plait.runtime.tokenizer import Tokenizer

        class SlowCore(FakeCore):
            def _schedule(self) -> None:
                if not self._scheduled:
                    self._scheduled = True
                    asyncio.get_running_loop().call_later(0.003, self._turn)

        data = json.loads((Path(options.model) / "tokenizer.json").read_text())
        world = FakeWorld(Tokenizer(data, size=512, bos_id=0, eos_ids=(2,)))
        core = SlowCore(world)
        say([await core.start(say, lambda cause: os.kill(os.getpid(), signal.SIGKILL))])
    await ended.wait()
    pump.close(linger_ms=100)
    context.term()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--connect", "--model", "--mode", "--kv-tokens", "--kv-before", "--threads", "--device"):
        parser.add_argument(name)
    parser.add_argument("--pipe", type=int)
    asyncio.run(main(parser.parse_args()))
