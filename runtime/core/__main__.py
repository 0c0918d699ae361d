"""``python -P -m plait.runtime.core``: load a model, connect to the front, run the loop. See :mod:`.loop`.

Exit status: 0 after Stop, SIGTERM or the end of the parent; 1 after a Fatal event. SIGINT is ignored: Ctrl-C reaches
the whole process group, and what it means is for the front to decide.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

# Before torch is imported: idle OpenMP threads would spin beside our own pool.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m plait.runtime.core", description=__doc__)
    parser.add_argument("--connect", required=True, help="ZeroMQ address that the front has bound (a PAIR socket)")
    parser.add_argument("--model", required=True, help="a GGUF file or a folder with config.json")
    parser.add_argument("--mode", choices=("reference", "exact"), default="exact")
    parser.add_argument("--device", default="auto", help="auto (a CUDA device where there is one), cpu, cuda, cuda:1")
    parser.add_argument("--kv-tokens", type=int, default=None, help="slots of the KV pool (default: from memory)")
    parser.add_argument(
        "--kv-before", type=int, default=None, help="slots of the core before this one: the same, or less"
    )
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    parser.add_argument("--pipe", type=int, default=None, help="inherited fd; the core exits when it closes")
    parser.add_argument("--step-tokens", type=int, default=None, help="most prompt tokens in one step")
    parser.add_argument("--log-level", default="WARNING")
    return parser


def _terminate(signum: int, frame: object) -> None:
    raise SystemExit(0)


def _end_with_parent(pipe: int, address: str) -> None:
    """Wait for the parent's end, however it ended, and end at once: loading a model or a step may take long.

    What a killed parent could not remove goes too: its socket for us, and the folder that it made for it.
    """
    while os.read(pipe, 1):
        pass
    path = Path(address.removeprefix("ipc://"))
    if address.startswith("ipc://") and path.parent.name.startswith("plait-"):
        with contextlib.suppress(OSError):  # it removed them itself
            path.unlink(missing_ok=True)
            path.parent.rmdir()
    os._exit(0)


def main(argv: list[str] | None = None) -> int:
    options = arguments().parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    if options.pipe is not None:  # a thread that blocks costs the loop nothing
        threading.Thread(target=_end_with_parent, args=(options.pipe, options.connect), daemon=True).start()
    from .process import serve

    return serve(options)


if __name__ == "__main__":
    sys.exit(main())
