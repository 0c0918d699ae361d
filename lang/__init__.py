"""The language: programs of gens, selects, forks and roles. Knows ops and backends; nothing of models or scheduling."""

from ..runtime.backend import Backend
from .api import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    gen_int,
    gen_string,
    greedy_token_selection,
    select,
    system,
    system_begin,
    system_end,
    token_length_normalized,
    unconditional_likelihood_normalized,
    user,
    user_begin,
    user_end,
)
from .constraint import Constraint
from .defaults import default_backend, register_factory, set_default_backend
from .expr import Expr
from .function import Function, function
from .group import ForkGroup
from .notices import PlaitWarning
from .result import Result
from .state import State

__all__ = [
    "Backend",
    "Constraint",
    "Expr",
    "ForkGroup",
    "Function",
    "PlaitWarning",
    "Result",
    "State",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "default_backend",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "greedy_token_selection",
    "register_factory",
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
