"""Client ops -> core script. One method per op; True when the op is lowered, False when something is awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from .. import wire
from ..protocol import Close, Done, Fork, Gen, Ids, RoleBegin, RoleEnd, Select, Text, VarRef
from . import seeds
from .constraints import wanted
from .prompt import Prompt, appended
from .strand import Barrier, Inflight, Item, OpError, Running, Strand

if TYPE_CHECKING:
    from .front import Front


class Lowering:
    """Lowers the op at the head of a strand's queue. Raises OpError when the op is refused."""

    def __init__(self, front: Front, prompt: Prompt) -> None:
        self._front = front
        self._prompt = prompt

    def lower(self, strand: Strand, item: Item) -> bool:
        strand.waits = ()
        match item:
            case Text():
                self._prompt.text(strand, item.text)
                return True
            case Ids():
                return self._ids(strand, item)
            case VarRef():
                return self._var_ref(strand, item)
            case RoleBegin():
                prefix = self._prompt.begin(strand, item.role)
                self._front.done(strand, Done(strand=strand.number, op=item.op, text=prefix))
                return True
            case RoleEnd():
                suffix = self._prompt.end(strand)
                self._front.done(strand, Done(strand=strand.number, op=item.op, text=suffix))
                return True
            case Gen():
                return self._gen(strand, item)
            case Select():
                return self._select(strand, item)
            case Fork():
                return self._fork(strand, item)
            case Barrier():
                return self._join(strand, item)
            case Close():
                return self._close(strand)

    # ------------------------------------------------------------ text

    def _ids(self, strand: Strand, item: Ids) -> bool:
        if not self._edge_ready(strand):
            return False
        if not strand.chat.open:
            self._prompt.outside(strand.chat, None)
        elif strand.chat.rerender:
            raise OpError("invalid_request", "ids cannot stand in a role of a model that renders text anew", "ids")
        self._flush(strand, item.op, bos=False)
        self._append(strand, item.op, list(item.ids))
        return True

    def _var_ref(self, strand: Strand, ref: VarRef) -> bool:
        if ref.strand == strand.number and ref.ref_op >= ref.op:
            raise OpError("invalid_request", f"op {ref.op} refers to op {ref.ref_op}, which does not precede it")
        key = (ref.strand, ref.ref_op, ref.choice)
        program = strand.referred.get(ref.op) or strand.session.program_of.get(ref.strand)
        if program is None:
            raise OpError("invalid_request", f"there is no strand {ref.strand} in this session", "strand")
        text = program.texts.get(key)
        if isinstance(text, OpError):
            raise OpError(
                "upstream", f"op {ref.ref_op} of strand {ref.strand} failed: {text.message}", None, ref.ref_op
            )
        if text is not None:
            self._prompt.text(strand, text)
            strand.referred.pop(ref.op, None)
            return True
        target = program.strands.get(ref.strand)
        if target is None or (target.closing and not target.queue and ref.ref_op not in target.unfinished):
            raise OpError(
                "invalid_request",
                f"op {ref.ref_op} (choice {ref.choice}) of strand {ref.strand} never produced a text",
                "ref_op",
            )
        pending = target.first_pending()
        if ref.ref_op <= target.last_op and (pending is None or pending > ref.ref_op):
            raise OpError(
                "invalid_request",
                f"op {ref.ref_op} of strand {ref.strand} has no text for choice {ref.choice}",
                "ref_op",
            )
        if target.cause is not None and ref.ref_op > target.last_op:
            raise OpError("upstream", f"strand {ref.strand} failed: {target.cause.message}", None, ref.ref_op)
        self._wait(strand, ((target, ref.ref_op),))
        return False

    # ------------------------------------------------------------ gen and select

    def _gen(self, strand: Strand, gen: Gen) -> bool:
        if not self._front.constraints.ready(gen.constraint, gen.sampling, strand):
            return False
        key = None if gen.constraint is None else wanted(gen.constraint).key
        if not self._edge_ready(strand):
            return False
        self._flush(strand, gen.op, bos=True)
        sampling = gen.sampling
        context = self._front.context_length
        room = context - strand.known
        need = max(sampling.min_tokens, 0 if sampling.max_tokens == 0 else 1)
        if need > room:
            self._too_long(strand.known, need, "max_tokens" if sampling.min_tokens == 0 else "min_tokens")
        eos = () if sampling.ignore_eos else self._front.model.tokenizer.eos_ids
        params = wire.SampleParams(
            max_tokens=room if sampling.max_tokens is None else min(sampling.max_tokens, room),
            seed=seeds.op_seed(strand.key, gen.op) if sampling.seed is None else sampling.seed,
            min_tokens=sampling.min_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            logit_bias=sampling.logit_bias,
            stop=tuple(text.encode("utf-8", "replace") for text in sampling.stop),
            stop_regex=sampling.stop_regex,
            stop_ids=(*eos, *sampling.stop_token_ids),
            logprobs=sampling.logprobs,
            top_logprobs=sampling.top_logprobs,
            wrap_up=sampling.wrap_up,
            end="never" if sampling.ignore_eos else sampling.end or "natural",
        )
        if sampling.logprob_start_len >= 0:
            read = wire.ScorePrompt(op=gen.op, start=sampling.logprob_start_len, top=sampling.prompt_top_logprobs)
            self._front.extend(strand, Inflight(read, hidden=True))
        hidden: list[Strand] = []
        if gen.n > 1:
            for choice in range(1, gen.n):
                hidden.append(self._front.new_hidden(strand, choice))
            fork = wire.ForkAt(op=gen.op, children=tuple(child.sid for child in hidden))
            self._front.extend(strand, Inflight(fork, children=tuple(hidden), hidden=True))
        notes = () if key is None else self._front.constraints.notes(key)
        field = "constraint" if gen.constraint is None else wanted(gen.constraint).field
        for choice, target in enumerate((strand, *hidden)):
            if key is not None:
                self._front.constraints.acquire(key)
            sample = wire.Sample(op=gen.op, params=params, choice=choice, constraint=key)
            self._front.extend(target, Inflight(sample, running=Running(stream=gen.stream), notes=notes, field=field))
        for child in hidden:
            self._front.close_core(child)
        self._prompt.produced(strand, gen.op)
        return True

    def _select(self, strand: Strand, select: Select) -> bool:
        if not self._edge_ready(strand):
            return False
        self._flush(strand, select.op, bos=True)
        choices = self._prompt.choices(strand, select.choices)
        longest = max(len(ids) for ids in choices)
        if strand.known + longest > self._front.context_length:
            self._too_long(strand.known, longest, "choices")
        score = wire.Score(
            op=select.op,
            choices=choices,
            method=select.method,
            temperature=select.temperature,
            seed=seeds.op_seed(strand.key, select.op) if select.seed is None else select.seed,
            prefix=self._prompt.unconditional,
        )
        self._front.extend(strand, Inflight(score, choices=select.choices))
        strand.known += min(len(ids) for ids in choices)
        self._prompt.produced(strand, select.op)
        return True

    # ------------------------------------------------------------ strands

    def _fork(self, strand: Strand, fork: Fork) -> bool:
        if not self._edge_ready(strand):
            return False
        self._flush(strand, fork.op, bos=False)
        found = (strand.session.strands.get(number) for number in fork.children)
        children = tuple(child for child in found if child is not None and child.parent is strand)  # not yet aborted
        entry = Inflight(wire.ForkAt(op=fork.op, children=tuple(child.sid for child in children)), children=children)
        self._front.extend(strand, entry)
        for child in children:
            child.born = True
            child.chat = strand.chat.copy()
            child.known = strand.known
            child.empty = strand.empty
            self._front.wake(child)
        return True

    def _join(self, strand: Strand, join: Barrier) -> bool:
        session = strand.session
        live = [session.strands[number] for number, _ in join.targets if number in session.strands]
        last = dict(join.targets)
        waits = [(child, last[child.number]) for child in live if _before(child, last[child.number])]
        if waits:
            self._wait(strand, tuple(waits))
            return False
        added: list[int] = []
        if join.append:
            if not self._edge_ready(strand):
                return False
            for number, _ in join.targets:
                added += self._added(strand, number)
            self._prompt.outside(strand.chat, None)
            self._flush(strand, join.op, bos=False)
            self._append(strand, join.op, added)
        text = self._front.model.tokenizer.vocabulary.decode(added).decode("utf-8", "replace")
        self._front.done(strand, Done(strand=strand.number, op=join.op, text=text, ids=tuple(added)))
        return True

    def _added(self, strand: Strand, number: int) -> list[int]:
        child = strand.session.strands.get(number)
        if child is not None:
            if child.cause is None:
                self._flush(child, child.last_op, bos=False)
                return child.added()
            cause = child.cause
        else:
            gone = strand.program.gone[number]
            if gone.cause is None:
                return gone.added
            cause = gone.cause
        raise OpError("upstream", f"strand {number} failed: {cause.message}", None, cause.cause_op)

    def _close(self, strand: Strand) -> bool:
        if strand.chat.rerender and strand.head is not None:
            return False  # what it holds in the end is rendered with the texts of its gens
        try:
            self._flush(strand, strand.last_op, bos=False)
        except OpError:
            strand.segments = []  # nobody will ever read what does not fit
        strand.closing = True
        self._front.close_core(strand)
        return True

    # ------------------------------------------------------------ edges and waits

    def _edge_ready(self, strand: Strand) -> bool:
        """False while a conversation that must be rendered anew waits for text of its own gens."""
        self._prompt.settle(strand)
        return not (strand.chat.rerender and strand.head is not None)

    def _flush(self, strand: Strand, op: int, *, bos: bool) -> None:
        if strand.chat.rerender:
            ids = self._prompt.whole(strand, self._front.text_of)
            held = appended(strand)
            if ids[: len(held)] == held:
                ids = ids[len(held) :]
            else:
                self._front.restart(strand)
        else:
            ids = self._prompt.flush(strand, bos=bos)
        self._append(strand, op, ids)

    def _append(self, strand: Strand, op: int, ids: list[int]) -> None:
        if not ids:
            return
        if strand.known + len(ids) > self._front.context_length:
            self._too_long(strand.known + len(ids), 0, "prompt")
        strand.empty = False
        strand.known += len(ids)
        self._front.extend(strand, Inflight(wire.Append(op=op, ids=tuple(ids))))

    def _too_long(self, length: int, need: int, field: str) -> NoReturn:
        more = f" and at least {need} more must fit" if need else ""
        raise OpError(
            "context_length",
            f"the prompt has {length} tokens{more}, but the model's context holds {self._front.context_length}: "
            "shorten the prompt",
            "prompt" if field != "choices" else field,
        )

    def _wait(self, strand: Strand, on: tuple[tuple[Strand, int], ...]) -> None:
        """Until something happens to the strands ``on``, each named with the op that is needed of it."""
        strand.waits = on
        seen: set[Strand] = set()
        todo = list(on)
        while todo:
            other, op = todo.pop()
            if not _stuck(other, op):
                continue  # the core has it: it comes whatever its strand waits for later
            if other is strand:
                raise OpError("invalid_request", "this op waits for a strand that waits for this strand")
            if other not in seen:
                seen.add(other)
                unborn = other.parent if not other.born else None
                todo += other.waits if unborn is None else ((unborn, unborn.last_op),)
        for other, _ in on:
            other.watchers[strand] = None


def _stuck(strand: Strand, op: int) -> bool:
    """Op ``op`` of the strand is behind the op that the strand cannot lower yet."""
    head = strand.queue[0] if strand.queue else None
    return head is not None and not isinstance(head, Close) and head.op <= op


def _before(child: Strand, last: int) -> bool:
    """Something of the child up to op ``last`` is still to come."""
    pending = child.first_pending()
    return pending is not None and pending <= last
