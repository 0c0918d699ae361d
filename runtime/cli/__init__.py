"""The command line. ``main`` is the console script ``plait``; it needs the runtime's extras, not torch."""

from __future__ import annotations

import sys

from ..errors import PlaitError


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits: 0, 2 with one clear line on bad input, 130 on Ctrl-C."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "plait":
            raise
        _fail(f"the command line needs the runtime's packages ({error.name} is missing): pip install 'plait[runtime]'")
    try:
        app(arguments, prog_name="plait")
    except PlaitError as error:
        _fail(str(error))
    except BrokenPipeError:  # `plait ... | head`
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str) -> None:
    print(f"plait: error: {message}", file=sys.stderr)
    sys.exit(2)
