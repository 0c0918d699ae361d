"""Open files: how many connections fit the process's limit, with room left for the core and its sockets."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from .errors import BackendError, RequestError

#: Kept free of connections, for the engine: libzmq ends the process if it finds none for a new socket, and a core
#: that is started again needs pipes and sockets.
_RESERVE = 96
#: Accepted at once, before any of them is counted; a few such bursts may be on their way.
BURST = 16
_BURSTS = 4
_SPARE = 24  # that a context of libzmq with its sockets, and a process with its pipes, need
_ENOUGH = 65_536  # some programs walk through all that the limit allows
_LEAST = 8


def raise_limit() -> None:
    """The soft limit is for programs that use select(); nothing here does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def clients_that_fit(wanted: int) -> int:
    """Of programs over ZeroMQ: at most ``wanted``, and a quarter of what may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft // 4)


def connections_that_fit(wanted: int, clients: int = 0) -> int:
    """At most ``wanted``, beside ``clients`` over ZeroMQ; asked before the engine starts. Raises RequestError where
    the limit leaves no room."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = soft - sum(1 for _ in Path("/dev/fd").iterdir()) - _RESERVE - _BURSTS * BURST - clients
    if room < min(wanted, _LEAST):
        raise RequestError(
            f"only {soft} files may be open at once, which is too few for a server: raise the limit (ulimit -n)"
        )
    return min(wanted, room)


def check_spare() -> None:
    """Raises BackendError where libzmq would find no descriptor, and end the process."""
    taken: list[int] = []
    try:
        for _ in range(_SPARE):
            taken.append(os.dup(2))
    except OSError as error:
        raise BackendError(f"{error}: close some, or raise the limit (ulimit -n)") from error
    finally:
        for each in taken:
            os.close(each)
