"""Text and roles -> ids. Text between two hard token edges is encoded once, whatever pieces it came in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import wire
from .chat import MOST_MESSAGES, ChatTemplate, Part, TemplateError, Wrap, looked_at
from .encoding import Encoder
from .settings import ServedModel
from .strand import Chat, OpError, Strand, Turn

#: Finds the text of a gen: (strand of the reader, (strand, op, choice)) -> text.
TextOf = Callable[[Strand, tuple[int, int, int]], str]


class Prompt:
    """Writes a strand's text. One per front; raises OpError."""

    def __init__(self, model: ServedModel, encoder: Encoder) -> None:
        self._tokenizer = model.tokenizer
        self._encoder = encoder
        self._context_length = model.context_length
        self._specials = sorted(model.tokenizer.special_tokens, key=len, reverse=True)
        self._first = {text[0] for text in self._specials}
        self.template: ChatTemplate | None = None
        self.template_problem = (
            f"the model {model.name} has no chat template: write plain text instead of roles, or serve a chat model"
        )
        if model.chat_template:
            try:
                self.template = ChatTemplate(
                    model.chat_template,
                    bos=model.token_text(model.tokenizer.bos_id),
                    eos=model.token_text(next(iter(model.tokenizer.eos_ids), None)),
                    specials=self._specials,
                )
            except TemplateError as error:
                self.template_problem = str(error)

    # ------------------------------------------------------------ writing

    def text(self, strand: Strand, text: str) -> None:
        chat = strand.chat
        if chat.open:
            chat.turns[-1].content.append(text)
            if chat.strips and chat.fresh:
                text = text.lstrip()
            chat.fresh = chat.fresh and not text
            strand.segments.append(Part(text, False))
            return
        self.outside(chat, Part(text, True))
        strand.segments.append(Part(text, True))

    def outside(self, chat: Chat, part: Part | None) -> None:
        """Note that something other than a message came (None: ids, which no template can render again)."""
        if chat.rerender:
            raise OpError(
                "invalid_request",
                "this model's chat template writes a conversation anew at each turn: "
                "text outside roles may only stand before the first role",
            )
        if chat.turns or part is None:
            chat.mixed = True
        else:
            chat.lead.append(part)

    def begin(self, strand: Strand, role: str) -> str:
        """Open a message; returns its prefix."""
        chat = strand.chat
        if chat.open:
            raise OpError(
                "invalid_request", f"role {role} begins inside role {chat.turns[-1].role}: end that one first", "role"
            )
        if self.template is None:
            raise OpError("invalid_request", self.template_problem, "role")
        if len(chat.turns) >= MOST_MESSAGES:
            raise OpError("invalid_request", f"a conversation has at most {MOST_MESSAGES} messages", "role")
        turns = chat.turns
        roles = tuple(turns[at].role if at < len(turns) else role for at in looked_at(len(turns) + 1))
        wrap: Wrap | None = None
        try:
            if not chat.rerender:
                wrap = self.template.derive(roles)
            prefix = wrap.prefix if wrap is not None else self.template.between(roles)
        except TemplateError as error:
            raise OpError("invalid_request", str(error), "role") from error
        if wrap is None:
            self._rerender(chat)
        else:
            strand.segments.append(Part(prefix, True))
            chat.guessed = chat.guessed or len(roles) <= len(turns)
            if chat.plain is not None:
                chat.plain.append(prefix)
                if role == "assistant" and turns:
                    chat.unseen = len(turns), len(chat.plain)
        turns.append(Turn(role, [], wrap))
        chat.open = chat.fresh = True
        chat.suffix = wrap.suffix if wrap is not None else ""
        chat.strips = wrap.strips if wrap is not None else False
        return prefix

    def _rerender(self, chat: Chat) -> None:
        """From now on the conversation is rendered whole at each gen."""
        if chat.mixed:
            self.outside(Chat(rerender=True), None)
        chat.rerender = True

    def settle(self, strand: Strand) -> None:
        """Before ids leave: what the turns came to is what the template writes. It is not where the template looks
        into contents (strips a marker, say), or where a message is written by more than the roles around it. Contents
        are not looked at while texts of gens are still to come."""
        chat = strand.chat
        if chat.rerender or self.template is None or not (chat.unseen or chat.guessed):
            return
        self._may_fit([part.text for part in strand.segments], "prompt")
        unseen, chat.unseen = chat.unseen, None
        guessed, chat.guessed = chat.guessed, False
        holds = True
        try:
            if unseen is not None and chat.plain is not None:
                count, pieces = unseen
                messages = [(turn.role, _written(turn)) for turn in chat.turns[:count]]
                holds = self.template.render(messages, generate=True) == "".join(chat.plain[:pieces])
            if holds and guessed:
                wraps = [turn.wrap for turn in chat.turns if turn.wrap is not None]
                holds = self.template.writes([turn.role for turn in chat.turns], wraps)
        except TemplateError as error:
            raise OpError("invalid_request", str(error), "role") from error
        if not holds:
            self._rerender(chat)

    def end(self, strand: Strand) -> str:
        """Close the open message; returns its suffix."""
        chat = strand.chat
        if not chat.open:
            raise OpError("invalid_request", "a role ends that never began", "role")
        if chat.strips:
            while strand.segments and not strand.segments[-1].special:
                text = strand.segments.pop().text.rstrip()
                if text:
                    strand.segments.append(Part(text, False))
                    break
        strand.segments.append(Part(chat.suffix, True))
        if chat.plain is not None:
            content = _written(chat.turns[-1])
            chat.plain += (content.strip() if chat.strips else content, chat.suffix)
        chat.open = False
        return chat.suffix

    def produced(self, strand: Strand, op: int) -> None:
        """A gen or select stands here; its text is part of the open message."""
        chat = strand.chat
        chat.fresh = False
        if chat.open:
            chat.turns[-1].content.append((strand.number, op, 0))
            chat.plain = None
        elif chat.turns:
            chat.mixed = True

    # ------------------------------------------------------------ encoding

    def flush(self, strand: Strand, *, bos: bool) -> list[int]:
        """The ids that a hard token edge adds. ``bos``: the edge needs at least one id in the strand."""
        ids = self._encoded(strand, strand.segments, start=strand.empty) if strand.segments else []
        strand.segments = []
        return self._with_bos(strand, ids, bos)

    def whole(self, strand: Strand, text_of: TextOf) -> list[int]:
        """Every id of the conversation as the template renders it now (for templates that do not extend)."""
        assert self.template is not None
        chat = strand.chat
        turns = [(turn.role, _content(strand, turn, text_of)) for turn in chat.turns]
        held = turns.pop() if chat.open else None
        try:
            if held is None:
                parts = self.template.render_parts(turns)
            elif held[0] == "assistant":
                parts = [*self.template.render_parts(turns, generate=True), Part(held[1], False)]
            else:
                parts = [*self.template.render_parts(turns, open_role=held[0]), Part(held[1], False)]
        except TemplateError as error:
            raise OpError("invalid_request", str(error), "role") from error
        ids = self._encoded(strand, [*chat.lead, *parts], start=True)
        strand.segments = []
        return self._with_bos(strand, ids, True, fresh=True)

    def _with_bos(self, strand: Strand, ids: list[int], wanted: bool, *, fresh: bool = False) -> list[int]:
        if not (strand.empty or fresh) or not (ids or wanted):
            return ids
        bos = self._tokenizer.bos_id if self._tokenizer.add_bos else None
        # A template that opens the strand writes its own BOS, or means to have none.
        by_template = bool(strand.chat.turns) and not strand.chat.lead
        if bos is not None and ids[:1] != [bos] and not by_template:
            return [bos, *ids]
        if not ids:
            raise OpError(
                "invalid_value", "the prompt is empty and this model has no BOS token: write some text first", "prompt"
            )
        return ids

    def choices(self, strand: Strand, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The choices of a Select, each encoded alone."""
        for text in texts:
            self._may_fit((text,), "choices")
        return self._encoder.get(
            strand,
            tuple(texts),
            sum(map(len, texts)),
            lambda: tuple(tuple(self._tokenizer.encode(text, special=False)) for text in texts),
        )

    @property
    def unconditional(self) -> tuple[int, ...]:
        """What the unconditional method scores after."""
        return () if self._tokenizer.bos_id is None else (self._tokenizer.bos_id,)

    def _may_fit(self, texts: Sequence[str], field: str) -> None:
        """Encoding takes a second per megabyte, and all wait: what cannot fit is refused by its length alone."""
        least = self._tokenizer.fewest("".join(texts))
        if least > self._context_length:
            raise OpError(
                "context_length",
                f"the prompt has at least {least} tokens, but the model's context holds {self._context_length}: "
                "shorten the prompt",
                field,
            )

    def _encoded(self, strand: Strand, parts: Sequence[Part], *, start: bool) -> list[int]:
        self._may_fit([part.text for part in parts], "prompt")
        key = (tuple(parts), start)
        return self._encoder.get(
            strand, key, sum(len(part.text) for part in parts), lambda: self._encode(key[0], start=start)
        )

    def _encode(self, parts: Sequence[Part], *, start: bool) -> list[int]:
        plain = [part.text for part in parts if not part.special]
        if not any(first in text for text in plain for first in self._first):
            return self._tokenizer.encode("".join(part.text for part in parts), special=True, start=start)
        # Somebody may have typed a special token: recognize them in the template's own text only.
        ids: list[int] = []
        run = ""
        for part in parts:
            rest = part.text
            while part.special and (found := self._next_special(rest)) is not None:
                at, text = found
                run += rest[:at]
                ids += self._tokenizer.encode(run, special=False, start=start and not ids)
                ids.append(self._tokenizer.special_tokens[text])
                run, rest = "", rest[at + len(text) :]
            run += rest
        return ids + self._tokenizer.encode(run, special=False, start=start and not ids)

    def _next_special(self, text: str) -> tuple[int, str] | None:
        """The leftmost special token in ``text``, the longest of those that begin there."""
        best: tuple[int, str] | None = None
        for special in self._specials:
            at = text.find(special)
            if at >= 0 and (best is None or at < best[0]):
                best = at, special
        return best


def _written(turn: Turn) -> str:
    """The content of a turn without gens."""
    return "".join(piece for piece in turn.content if isinstance(piece, str))


def _content(strand: Strand, turn: Turn, text_of: TextOf) -> str:
    return "".join(piece if isinstance(piece, str) else text_of(strand, piece) for piece in turn.content)


def appended(strand: Strand) -> list[int]:
    """Ids that the strand holds with every Append in flight (no answered op may be in flight)."""
    ids = list(strand.ids or [])
    for entry in strand.inflight:
        if isinstance(entry.op, wire.Append):
            ids += entry.op.ids
    return ids
