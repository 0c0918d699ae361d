"""Plait: a structured-generation language and its runtime.

    import plait

    @plait.function
    def greet(s, name):
        s += plait.user(f"Say hello to {name}.")
        s += plait.assistant(plait.gen("hello", max_tokens=16))

    print(greet.run("Ada")["hello"])

Importing this loads the language only; the runtime (and torch with it) is loaded when it is first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from . import constraints, lang
from .lang import (
    Backend,
    Constraint,
    Expr,
    ForkGroup,
    Function,
    PlaitWarning,
    Result,
    State,
    assistant,
    assistant_begin,
    assistant_end,
    function,
    gen,
    gen_int,
    gen_string,
    greedy_token_selection,
    select,
    set_default_backend,
    system,
    system_begin,
    system_end,
    token_length_normalized,
    unconditional_likelihood_normalized,
    user,
    user_begin,
    user_end,
)
from .runtime import errors
from .runtime.errors import ForkError, NotReady, PlaitError, RunTimeout

if TYPE_CHECKING:
    from .runtime.client import connect as connect
    from .runtime.runtime import Runtime as Runtime

#: Without Runtime and connect, so that a star import stays light.
__all__ = [
    "Backend",
    "Constraint",
    "Expr",
    "ForkError",
    "ForkGroup",
    "Function",
    "NotReady",
    "PlaitError",
    "PlaitWarning",
    "Result",
    "RunTimeout",
    "State",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "constraints",
    "errors",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "greedy_token_selection",
    "select",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
]

#: Where the names that are loaded on first use live.
_LAZY = {"Runtime": ".runtime.runtime", "connect": ".runtime.client"}

_MISSING = "not available in this version"
#: Names that SGLang's frontend has and this version does not, with what to use where there is something.
_ELSEWHERE = {
    "image": f"images are {_MISSING}",
    "video": f"video is {_MISSING}",
    "separate_reasoning": f"separating reasoning is {_MISSING}",
    "trace": f"tracing is {_MISSING}",
    "RuntimeEndpoint": "use plait.connect(address), with the address that `plait serve --address` was given",
    "Engine": "use plait.Runtime(model)",
    "global_config": "there is no global configuration: options go to gen, to a run, to plait.Runtime",
    **dict.fromkeys(("OpenAI", "Anthropic", "LiteLLM", "VertexAI"), "programs run on Plait's own runtime only"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            value = getattr(importlib.import_module(_LAZY[name], __name__), name)
        except ModuleNotFoundError as error:
            message = f"plait.{name} needs {error.name}, which is not installed; install 'plait[runtime]'"
            raise ModuleNotFoundError(message, name=error.name) from error
        globals()[name] = value
        return value
    if name == "__version__":
        from importlib.metadata import version

        return version("plait")
    if name in _ELSEWHERE:
        message = f"plait.{name}: {_ELSEWHERE[name]}"
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # `from plait import name` would hide the message
            raise ImportError(message, name=__name__)
        raise AttributeError(message)
    raise AttributeError(f"module 'plait' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a reader may use; modules and helpers that this file needs are left out."""
    return sorted({*__all__, *_LAZY, *(name for name in globals() if name.startswith("__"))})


def _start_backend() -> Backend:
    """The backend of a run without one: a warm server named by $PLAIT_BACKEND, else a Runtime of our own."""
    address = os.environ.get("PLAIT_BACKEND")
    if address:
        from .runtime.client import connect

        return connect(address)
    try:
        from .runtime.runtime import Runtime
    except ModuleNotFoundError as error:
        raise errors.BackendError(
            f"there is no backend to run on: starting one needs {error.name}, which is not installed; "
            "install 'plait[runtime]', or set PLAIT_BACKEND to the address of a running server"
        ) from error
    return Runtime()


lang.register_factory(_start_backend)
