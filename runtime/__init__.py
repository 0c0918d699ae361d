"""The engine, and how to reach one. Both names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import connect
    from .runtime import Runtime

__all__ = ["Runtime", "connect"]


def __getattr__(name: str) -> Any:
    if name == "Runtime":
        from .runtime import Runtime

        return Runtime
    if name == "connect":
        from .client import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
