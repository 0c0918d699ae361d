"""What a Pydantic type asks for that its JSON Schema cannot carry: validators and other code, by name and place.

::

    class Trip(BaseModel):                              Trip.end: the validator Trip.after_start
        end: date                                       Trip: the validator Trip.together
        @field_validator("end") ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

#: parts of a core schema that hold no schema of what is read
_ASIDE = frozenset(("serialization", "metadata", "default", "config", "cls", "ref", "schema_ref", "python_schema"))
_BY_CODE = frozenset(("function-before", "function-after", "function-wrap", "function-plain"))
#: functions of Pydantic's own that refuse what the schema allows, by the beginning of their names
_OWN = {
    "PathType.": "what the file system has to say of the path",
    "PaymentCardNumber.": "the check digit of a card number",
    "apply_known_metadata.<locals>.val_func": "a predicate",
    "ImportString.": "what can be imported",
}
_LIMITS = {
    "greater_than_validator": "gt",
    "greater_than_or_equal_validator": "ge",
    "less_than_validator": "lt",
    "less_than_or_equal_validator": "le",
    "multiple_of_validator": "multiple_of",
    "max_digits_validator": "max_digits",
    "decimal_places_validator": "decimal_places",
}


def notes(core_schema: Any) -> tuple[str, ...]:
    """Each once, in the order of the fields."""
    return tuple(dict.fromkeys(f"{place}: {what}" if place else what for place, what in _walk(core_schema, "")))


def by_user(schema: Any) -> bool:
    """Whether a function of the user's stands in a core schema, on the way to its value."""
    while isinstance(schema, dict):
        if schema.get("type") in _BY_CODE and _said(_function(schema)):
            return True
        schema = schema.get("schema")
    return False


def _walk(node: Any, place: str) -> Iterator[tuple[str, str]]:
    todo = [(node, place)]
    while todo:
        part, at = todo.pop()
        if isinstance(part, list | tuple):
            todo += [(one, at) for one in reversed(part)]
            continue
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if kind in _BY_CODE:
            said = _said(_function(part))
            if said:
                yield _of_model(part) or at, said
        if kind in ("model", "dataclass", "typed-dict"):
            cls = part.get("cls")
            at = getattr(cls, "__name__", at)
            yield from ((at, said) for said in _of_class(cls, part))
        if kind == "lax-or-strict":
            todo.append((part["lax_schema"], at))
            continue
        inner: list[tuple[Any, str]] = []
        for name, one in part.items():
            if name == "fields" and isinstance(one, dict):
                inner += [(field, f"{at}.{key}" if at else key) for key, field in one.items()]
            elif name == "choices" and isinstance(one, dict):
                inner += [(choice, at) for choice in one.values()]
            elif name == "fields" and isinstance(one, list):
                inner += [(field, f"{at}.{field['name']}" if at else field["name"]) for field in one if "name" in field]
            elif name not in _ASIDE and isinstance(one, dict | list | tuple):
                inner.append((one, at))
        todo += reversed(inner)


def _of_model(schema: Any) -> str | None:
    """The name of the model that a function is of."""
    while isinstance(schema, dict):
        if schema.get("type") in ("model", "dataclass"):
            name: str = schema["cls"].__name__
            return name
        schema = schema.get("schema") if schema.get("type") in _BY_CODE else None
    return None


def _of_class(cls: Any, schema: dict[str, Any]) -> Iterator[str]:
    for name in ("model_post_init", "__post_init__"):
        found = getattr(cls, name, None)
        if schema.get("post_init") and found is not None and not _ours(found):
            yield f"what {getattr(found, '__qualname__', name)} asks for"
    if schema.get("custom_init"):
        yield f"what {cls.__name__}.__init__ asks for"


def _function(schema: dict[str, Any]) -> Any:
    return schema["function"].get("function")


def _said(function: Any) -> str | None:
    """What a function may refuse; None: nothing that the schema does not say."""
    keywords = getattr(function, "keywords", {})  # of a partial
    function = getattr(function, "func", function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if name in _LIMITS:
        return ", ".join(f"{key}={value!r}" for key, value in keywords.items())
    for begin, what in _OWN.items():
        if name.startswith(begin):
            return what
    return None if _ours(function) else f"the validator {name}"


def _ours(function: Any) -> bool:
    """Of Pydantic or the standard library."""
    module = (getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]
    return module in ("pydantic", "pydantic_core") or (module in sys.stdlib_module_names and module != "__main__")
