"""``plait run FILE``: a script beside a warm default backend."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import PlaitError, RequestError
from .backends import opened


def run_script(file: str, arguments: list[str], address: str | None, **options: Any) -> None:
    """The file runs as ``__main__``, with its folder first on the path, as ``python FILE`` would."""
    path = Path(file)
    if not path.is_file():
        raise RequestError(f"no such script: {file}", "file")
    from ... import set_default_backend

    with opened(address, **options) as backend:
        set_default_backend(backend)
        before = sys.argv, sys.path[:]
        sys.argv = [file, *arguments]
        sys.path.insert(0, str(path.resolve().parent))
        try:
            runpy.run_path(file, run_name="__main__")
        except PlaitError as error:
            raise with_place(error, path) from error
        except Exception as error:  # a fault of the script's own: its traceback, as `python FILE` would show it
            traceback.print_exception(error.with_traceback(from_script(error, file)))
            sys.exit(1)
        finally:
            sys.argv, sys.path[:] = before
            set_default_backend(None)


def from_script(error: Exception, file: str) -> TracebackType | None:
    """Its traceback from the script's first frame on; None where the script could not even begin (SyntaxError)."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


def with_place(error: PlaitError, path: Path) -> PlaitError:
    """The same message, and the script's own line that ran into it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    where = f" ({path}:{frames[-1].lineno})" if frames else f" ({path})"
    return PlaitError(f"{error}{where}")
