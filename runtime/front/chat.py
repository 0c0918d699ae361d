"""The model's own chat template: role prefixes and suffixes, derived once by rendering with sentinels.

Message k of a conversation is written as ``prefix + content + suffix``. Both depend on the roles before it only
(templates inject a default system message, for instance), so they are derived per sequence of roles: render the
conversation with sentinels for contents, and check that it begins with the rendering of the shorter one, and with
the generation prompt where the role is the assistant's. Where that does not hold the conversation is rendered
again, whole, at each gen (:meth:`ChatTemplate.derive` returns None).

A long conversation is derived from a short one that begins and ends alike (:func:`looked_at`), so that a message costs
the same however many came before it. That is a guess; :meth:`ChatTemplate.writes` tells whether it was right, once
before ids leave.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox

from ..protocol import MAX_MESSAGES

#: of one conversation: it is rendered whole before a gen, on the loop that everybody shares
MOST_MESSAGES = MAX_MESSAGES
_HEAD, _TAIL = 2, 3  # roles of a long conversation that are looked at
_CACHE = 8192  # derived role sequences kept: all there are of four roles, shortened
_PAD = "\t\n\t"  # tells a template that strips contents from one that does not


class TemplateError(ValueError):
    """The template refuses the conversation, or is broken."""


class Part(NamedTuple):
    """A stretch of prompt text. ``special``: special tokens are recognized in it."""

    text: str
    special: bool


@dataclass(frozen=True)
class Wrap:
    """How one message is written. ``strips``: the template strips whitespace around contents."""

    prefix: str
    suffix: str
    strips: bool

    def around(self, content: str) -> str:
        return self.prefix + (content.strip() if self.strips else content) + self.suffix


class ChatTemplate:
    """One Jinja chat template in a sandbox. Raises TemplateError if it does not parse."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "", specials: Sequence[str] = ()) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the model's chat template does not parse: {error}") from error
        self._names = {"bos_token": bos, "eos_token": eos, "tools": None, "documents": None}
        self._specials = tuple(specials)
        self._derived: OrderedDict[tuple[str, ...], Wrap | None] = OrderedDict()
        self._last: tuple[tuple[str, ...], str] = ((), "")

    def render(self, messages: Sequence[tuple[str, str]], *, generate: bool = False) -> str:
        """The conversation of (role, content) as text; ``generate`` adds the generation prompt."""
        try:
            return self._template.render(
                messages=[{"role": role, "content": content} for role, content in messages],
                add_generation_prompt=generate,
                **self._names,
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise TemplateError(f"the model's chat template refuses these roles: {error}") from error

    def derive(self, roles: tuple[str, ...]) -> Wrap | None:
        """How the last message of ``roles`` is written after the others; None if longer does not extend shorter."""
        known = len(roles)
        while known and roles[:known] not in self._derived:
            known -= 1
        for length in range(known + 1, len(roles) + 1):
            self._derived[roles[:length]] = self._derive(roles[:length])
            if len(self._derived) > _CACHE:
                self._derived.popitem(last=False)
        self._derived.move_to_end(roles)
        return self._derived[roles]

    def writes(self, roles: Sequence[str], wraps: Sequence[Wrap]) -> bool:
        """Whether the whole conversation is what ``wraps`` make of its messages."""
        marked = _marked(roles)
        return self.render(marked) == "".join(wrap.around(content) for wrap, (_, content) in zip(wraps, marked))

    def _derive(self, roles: tuple[str, ...]) -> Wrap | None:
        """The same, when the roles before the last are derived."""
        shorter = ""
        if len(roles) > 1:
            if self._derived[roles[:-1]] is None:
                return None
            shorter = self._sentinels(roles[:-1])
        opening = None
        if roles[-1] == "assistant" and len(roles) > 1:
            opening = self.render(_marked(roles[:-1]), generate=True)
        whole = self._sentinels(roles)
        mark = _mark(len(roles) - 1)
        if whole.count(mark) != 1:
            return None
        before, after = whole.split(mark)
        strips = not (before.endswith(_PAD) and after.startswith(_PAD))
        if not strips:
            before, after = before.removesuffix(_PAD), after.removeprefix(_PAD)
        elif _PAD in after[: len(_PAD)] or before.endswith(_PAD):
            return None  # strips one side only
        if not before.startswith(shorter) or opening not in (None, before):
            return None
        return Wrap(before[len(shorter) :], after, strips)

    def _sentinels(self, roles: tuple[str, ...]) -> str:
        """The conversation with sentinels for contents. The last one is kept: the next is compared with it."""
        if self._last[0] != roles:
            self._last = roles, self.render(_marked(roles))
        return self._last[1]

    def between(self, roles: tuple[str, ...]) -> str:
        """What the template writes between the content of the last message and that of the one before it."""
        marks = [_mark(at) for at in range(len(roles))]
        text = self.render(list(zip(roles, marks))).split(marks[-1])[0]
        return text.split(marks[-2])[-1] if len(marks) > 1 else text

    def render_parts(
        self, messages: Sequence[tuple[str, str]], *, generate: bool = False, open_role: str | None = None
    ) -> list[Part]:
        """The conversation with contents kept apart from the template's own text.

        ``open_role``: what follows is a message of this role, begun and without content; the text ends where its
        content begins.
        """
        marks = [_mark(at) for at in range(len(messages))]
        end = _mark(len(messages))
        # A template that looks into contents must see them; only those that could spell a special token stay out.
        hidden = [any(special in content for special in self._specials) for _, content in messages]
        mixed = [(role, mark if hide else content) for (role, content), mark, hide in zip(messages, marks, hidden)]
        if open_role is not None:
            mixed.append((open_role, end))
        text = self.render(mixed, generate=generate)
        if open_role is not None:
            if end not in text:
                raise TemplateError(f"the model's chat template does not show the content of a {open_role} message")
            text = text[: text.index(end)]
        parts: list[Part] = []
        for (_, content), mark, hide in zip(messages, marks, hidden):
            if hide and mark in text:
                ahead, _, text = text.partition(mark)
                parts += [Part(ahead, True), Part(content, False)]
        parts.append(Part(text, True))
        return parts


def looked_at(count: int) -> Sequence[int]:
    """Which of ``count`` messages say how the last is written: some from the beginning and the end, all but an even
    number, so that roles still alternate."""
    extra = count - _HEAD - _TAIL
    tail = _TAIL + extra % 2
    return range(count) if extra <= 1 else (*range(_HEAD), *range(count - tail, count))


def _mark(index: int) -> str:
    return f"\ue000{index}\ue001"  # private use: no template and no user text contains it by chance


def _marked(roles: Sequence[str]) -> list[tuple[str, str]]:
    return [(role, _PAD + _mark(at) + _PAD) for at, role in enumerate(roles)]


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
