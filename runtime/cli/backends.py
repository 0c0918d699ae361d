"""The backend that a command works on: one that runs here, or one somewhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import store
from ..backend import Backend
from ..errors import RequestError

if TYPE_CHECKING:
    from ..runtime import Runtime


@contextmanager
def opened(address: str | None, /, **options: Any) -> Iterator[Backend]:
    """``connect(address)``, else a Runtime with ``options``; closed at the end, whatever happens."""
    if address:
        if given := sorted(name for name, value in options.items() if value not in (None, "auto")):
            raise RequestError(
                f"a running backend has its own {', '.join(given)}: leave that or --backend out", given[0]
            )
        from ..client import connect

        backend: Backend = connect(address)
        try:
            yield backend
        finally:
            backend.close()
        return
    with started(**options) as runtime:
        yield runtime


@contextmanager
def started(*, model: str | None = None, **options: Any) -> Iterator[Runtime]:
    """A Runtime of this process; its model is fetched first if need be."""
    path = store.resolve(model)
    print(f"plait: loading {path.name}", file=sys.stderr, flush=True)
    from ..runtime import Runtime

    with Runtime(path, **options) as runtime:
        yield runtime
