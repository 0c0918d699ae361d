"""``python -m plait``: the command line."""

from __future__ import annotations

import sys


def main() -> int | None:
    try:
        from .runtime.cli import main as run
    except ModuleNotFoundError as error:
        print(f"plait: the command line needs {error.name}; install 'plait[runtime]'", file=sys.stderr)
        return 1
    run()
    return None


if __name__ == "__main__":
    sys.exit(main())
