"""The side of the engine that talks: takes fragments, lowers them for the core, and tells what came of them.

Everything here runs on one event loop. An entry point (a client's message, a frame of the core, a verdict of the
compiler) changes records and marks strands ready; :meth:`Front.turn` then lowers what can be lowered, and sends
one frame to the core and one batch to each session.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from .. import wire
from ..errors import BackendError
from ..protocol import Close, Closed, Done, Fork, Info
from .compiling import Compilers
from .constraints import Compile, Constraints
from .encoding import Encoder, Encoding
from .epochs import Epochs
from .events import Answers
from .intake import Intake
from .link import CoreItem, LinkFactory
from .lowering import Lowering
from .metrics import Metrics
from .prompt import Prompt
from .session import Deliver, Session
from .settings import ServedModel, Settings
from .strand import Gone, Inflight, OpError, Program, Strand, choices_of, consequence, failure, opening

log = logging.getLogger(__name__)


class Front:
    """One engine for any number of sessions. ``link`` makes the connection to one core process per epoch;
    ``compile`` turns a constraint's specification into its payload (default: the compiler child)."""

    def __init__(
        self,
        model: ServedModel,
        link: LinkFactory,
        settings: Settings | None = None,
        compile: Compile | None = None,
    ) -> None:
        self.model = model
        self.settings = settings or Settings()
        self.context_length = model.context_length
        self.metrics = Metrics()
        self.unsent: list[Session] = []
        self.sids: dict[int, Strand] = {}  # what the core knows
        self._child = None if compile is not None else Compilers(self.settings)
        self.constraints = Constraints(self, compile or self._compile_in_child)
        self.epochs = Epochs(self, link)
        self._encoder = Encoder(self.settings.encode_inline, self._encoded)
        self._lowering = Lowering(self, Prompt(model, self._encoder))
        self.intake = Intake(self)
        self.answers = Answers(self)
        self._sessions: dict[str, Session] = {}
        self._next_sid = itertools.count(1)
        self._next_session = itertools.count(1)
        self._ready: dict[Strand, None] = {}  # an ordered set
        self._items: list[CoreItem | list[Any]] = []  # for the core; [sid, op, op, ...] grows into an ExtendStrand
        self.live = 0  # strands, hidden ones included
        self.pending = 0  # answers that are owed, one per choice
        self._ended: list[tuple[Session, Program]] = []
        self._asking: dict[Session, None] = {}  # have sent what nobody has looked at yet
        self._dead: deque[Strand] = deque()  # of sessions that are over
        self._deadline = 0.0  # of this turn
        self._later: asyncio.Handle | None = None
        self._closing = False
        self._turning = False
        self.ready: wire.Ready | None = None

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Start the core. Raises ModelError or BackendError with what it said."""
        await self.epochs.start()

    def took_up(self, ready: wire.Ready) -> None:
        """A core is there. Says what whoever started the engine should know of it."""
        before, self.ready = self.ready, ready
        self.context_length = min(self.model.context_length, ready.context_length)
        for note in ready.notes:
            log.warning("%s", note)
        if before is not None and before.kv_tokens != ready.kv_tokens:
            log.warning("the core has %d tokens of KV now, %d before", ready.kv_tokens, before.kv_tokens)

    async def close(self) -> None:
        """End every session and the core. Idempotent."""
        if self._closing:
            return
        self._closing = True
        for session in list(self._sessions.values()):
            session.end("shutdown", "the runtime was shut down")
        self._encoder.close()
        await self.epochs.close()
        await self.constraints.close()
        if self._child is not None:
            await self._child.close()

    @property
    def info(self) -> Info:
        """What is served. Raises BackendError before :meth:`start`."""
        if self.ready is None:
            raise BackendError("the runtime has not started yet")
        return Info(
            model=self.model.name,
            context_length=self.context_length,
            vocab_size=self.model.vocab_size,
            kv_tokens=self.ready.kv_tokens,
            mode=self.ready.mode,
            device=self.ready.device,
            version=metadata.version("plait"),
            has_chat_template=self.model.chat_template is not None,
        )

    @property
    def stats(self) -> wire.Stats:
        """The core's last word on itself; before its first one, an empty pool."""
        if self.metrics.stats is not None:
            return self.metrics.stats
        size = self.ready.kv_tokens if self.ready is not None else 0
        return wire.Stats.empty(size)

    def open_session(self, deliver: Deliver, session_id: str) -> Session:
        """A session, or the known one of this id, which from now on delivers to ``deliver``."""
        session = self._sessions.get(session_id)
        if session is None:
            session = Session(self, next(self._next_session), session_id, deliver)
            self._sessions[session_id] = session
        session.deliver = deliver
        return session

    def end_session(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        self._dead.extend(session.strands.values())
        self._dead.extend(session.hidden)
        for gone in (session.strands, session.hidden, session.programs, session.program_of):
            gone.clear()
        self.turn()

    def _bury(self, strand: Strand) -> None:
        """Let go of what a client left behind."""
        if strand.gone:
            return
        self.pending -= sum(map(len, strand.unfinished.values()))
        strand.queue.clear()
        strand.gone = True
        self.live -= 1
        self.constraints.unwanted(strand)
        for entry in strand.inflight:
            self.constraints.leave(entry.op)
        self._abort_core(strand)

    async def _compile_in_child(self, kind: str, source: str, backend: str) -> bytes:
        assert self._child is not None
        return await self._child.compile(kind, source, backend)

    # ------------------------------------------------------------ what a client waits for

    def done(self, strand: Strand, event: Done) -> None:
        """An op (one choice of it) ended well. ``strand`` is the client's strand."""
        strand.program.texts[event.strand, event.op, event.choice] = event.text
        strand.session.emit(event)
        self.metrics.done += 1
        self._answered(strand, event.op, event.choice)

    def failed(self, strand: Strand, op: int, choice: int, error: OpError) -> None:
        """One choice of an op failed; what follows from that is up to :meth:`fail`."""
        strand.program.texts[strand.number, op, choice] = error
        strand.session.emit(failure(strand.number, op, choice, error))
        self.metrics.failed[error.code] += 1
        self._answered(strand, op, choice)

    def fail(self, strand: Strand, op: int, error: OpError, choices: Sequence[int] | None = None) -> None:
        """An op failed, and with it every later op of the strand and every strand that was still to come of it."""
        if choices is None:
            choices = sorted(strand.unfinished.get(op) or (0,))
        for choice in choices:
            self.failed(strand, op, choice, error)
        if strand.cause is None or (strand.cause.cause_op or 0) > op:
            strand.cause = OpError(error.code, error.message, error.field, op)
        after = consequence(strand.cause)
        for entry in [entry for entry in strand.inflight if entry.op.op == op]:
            self._withdraw(strand, entry, after)
        self.drop_after(strand, op, after)

    def drop_after(self, strand: Strand, op: int, error: OpError) -> None:
        """Fail every op after ``op``. A queued Close is carried out, unless earlier ops are still queued."""
        kept = [item for item in strand.queue if not isinstance(item, Close) and item.op <= op]
        dropped = [item for item in strand.queue if not isinstance(item, Close) and item.op > op]
        close = next((item for item in strand.queue if isinstance(item, Close)), None)
        strand.queue.clear()
        strand.queue.extend(kept)
        later = {item.op: set(choices_of(item)) for item in dropped}
        later |= {number: set(left) for number, left in strand.unfinished.items() if number > op}
        for number in sorted(later):
            for choice in sorted(later[number]):
                self.failed(strand, number, choice, error)
        for entry in [entry for entry in strand.inflight if entry.op.op > op]:
            self._withdraw(strand, entry, error)
        for item in dropped:
            if isinstance(item, Fork):
                self.kill_children(strand, item, error)
        if close is not None and kept:
            strand.queue.append(close)
        elif close is not None:
            self.shut(strand)

    def _withdraw(self, strand: Strand, entry: Inflight, error: OpError) -> None:
        strand.inflight.remove(entry)
        self.constraints.leave(entry.op)
        for child in entry.children:
            self.kill(child, error)

    def kill_children(self, strand: Strand, fork: Fork, error: OpError) -> None:
        for number in fork.children:
            child = strand.session.strands.get(number)
            if child is not None and child.parent is strand:
                self.kill(child, error)

    def kill(self, strand: Strand, error: OpError) -> None:
        """A strand whose fork will never happen, or a hidden one that failed."""
        if strand.gone:
            return
        self._abort_core(strand)
        if strand.hidden:
            parent = strand.parent
            assert parent is not None
            for entry in strand.inflight:
                self.constraints.leave(entry.op)
                if strand.choice in parent.unfinished.get(entry.op.op, ()):
                    self.failed(parent, entry.op.op, strand.choice, error)
            strand.inflight.clear()
            self.forget(strand)
            return
        strand.cause = error
        self.drop_after(strand, -1, error)

    def _answered(self, strand: Strand, op: int, choice: int) -> None:
        left = strand.unfinished.get(op)
        if left is not None and choice in left:
            left.discard(choice)
            self.pending -= 1
            if not left:
                del strand.unfinished[op]
        self.wake_watchers(strand)
        if strand.closing:
            self.settle(strand)

    def text_of(self, strand: Strand, key: tuple[int, int, int]) -> str:
        """The text of a gen that is done."""
        program = strand.session.program_of[key[0]]
        text = program.texts[key]
        if isinstance(text, OpError):
            raise text
        return text

    # ------------------------------------------------------------ strands

    def new_strand(
        self, session: Session, program: Program, number: int, key: bytes, parent: Strand | None = None
    ) -> Strand:
        strand = Strand(session, program, number, next(self._next_sid), key, parent=parent)
        if parent is not None:
            strand.namespace, strand.priority = parent.namespace, parent.priority
        session.strands[number] = strand
        session.program_of[number] = program
        program.strands[number] = strand
        self.live += 1
        return strand

    def new_hidden(self, parent: Strand, choice: int) -> Strand:
        """A child that computes one more choice of a gen; it ends with the gen."""
        sid = next(self._next_sid)
        child = Strand(parent.session, parent.program, parent.number, sid, parent.key, parent=parent, choice=choice)
        child.namespace, child.priority, child.born = parent.namespace, parent.priority, True
        self.sids[sid] = child
        parent.session.hidden[child] = None
        self.live += 1
        return child

    def shut(self, strand: Strand) -> None:
        """The client is done with the strand; it goes once its ops are answered."""
        strand.closing = True
        self.close_core(strand)
        self.settle(strand)

    def settle(self, strand: Strand) -> None:
        """Forget a closing strand that nothing waits for any more."""
        if strand.closing and not strand.unfinished and not strand.queue and not strand.gone:
            self.forget(strand)

    def forget(self, strand: Strand) -> None:
        session, program = strand.session, strand.program
        strand.gone = True
        self.live -= 1
        self.sids.pop(strand.sid, None)
        if strand.hidden:
            session.hidden.pop(strand, None)
            return
        program.gone[strand.number] = Gone(strand.parent, strand.added(), strand.cause)
        strand.ids = None
        session.strands.pop(strand.number, None)
        program.strands.pop(strand.number, None)
        session.emit(Closed(strand.number))
        self.wake_watchers(strand)
        if not program.strands:
            session.programs.pop(program.number, None)
            self._ended.append((session, program))  # whoever waits for its texts reads them in this turn

    def wake(self, strand: Strand) -> None:
        self._ready[strand] = None

    def wake_watchers(self, strand: Strand) -> None:
        """Whatever waits for this strand looks again; so does the strand itself (it may wait for its own gens)."""
        if strand.watchers:
            self._ready.update(strand.watchers)
            strand.watchers = {}
        if strand.queue:
            self._ready[strand] = None

    # ------------------------------------------------------------ towards the core

    def open_core(self, strand: Strand) -> None:
        self.sids[strand.sid] = strand
        self.send(opening(strand))

    def extend(self, strand: Strand, entry: Inflight) -> None:
        """Give the core one more op of the strand."""
        strand.inflight.append(entry)
        for child in entry.children:
            self.sids[child.sid] = child
        if self._items and isinstance(self._items[-1], list) and self._items[-1][0] == strand.sid:
            self._items[-1].append(entry.op)
        else:
            self._items.append([strand.sid, entry.op])

    def send(self, item: CoreItem) -> None:
        self._items.append(item)

    def close_core(self, strand: Strand) -> None:
        if strand.sid in self.sids and not strand.close_sent:
            strand.close_sent = True
            self.send(wire.CloseStrand(sid=strand.sid))

    def _abort_core(self, strand: Strand) -> None:
        if strand.sid in self.sids:
            self.send(wire.AbortStrand(sid=strand.sid))
            del self.sids[strand.sid]

    def restart(self, strand: Strand) -> None:
        """Begin the strand's ids anew under another sid (conversations that must be rendered again)."""
        self.send(wire.CloseStrand(sid=strand.sid))
        self.sids.pop(strand.sid, None)
        strand.sid = next(self._next_sid)
        strand.ids = []
        strand.fork_length = 0
        strand.inflight.clear()
        strand.known = 0
        strand.empty = True
        self.open_core(strand)

    # ------------------------------------------------------------ one turn

    def on_events(self, events: Sequence[wire.CoreEvent]) -> None:
        """One frame of the core."""
        self.answers.take(events)
        self.turn()

    def turn(self) -> None:
        """Look at what clients sent, lower what can be lowered; one frame to the core; one batch to each session.

        A turn has ``settings.turn`` seconds. What is left then has the next one, after what else the loop has to do.
        Each kind of work gets on by one step at least, however late it is.
        """
        if self._turning:
            return  # a listener called back; the turn that called it goes on
        self._turning = True
        self._deadline = self.settings.clock() + self.settings.turn
        try:
            while self._asking or self._dead or self._ready or self._items or self._ended or self.unsent:
                until = self._share()
                while self._asking:
                    self._look()
                    if self.settings.clock() > until:
                        break
                until = self._share()
                while self._dead:
                    self._bury(self._dead.popleft())
                    if self.settings.clock() > until:
                        break
                while self._ready:
                    strand = next(iter(self._ready))
                    del self._ready[strand]
                    self._pump(strand)
                    if self.late:
                        break
                if not self._ready:
                    for session, program in self._ended:
                        for number in program.gone:
                            session.program_of.pop(number, None)
                    self._ended.clear()
                items, self._items = self._items, []
                if items:
                    self.epochs.send([_item(item) if isinstance(item, list) else item for item in items])
                sessions, self.unsent = self.unsent, []
                for session in sessions:
                    session.flush()
                if self.late and (self._asking or self._dead or self._ready or self._ended):
                    self._next_turn()
                    return
        finally:
            self._turning = False

    @property
    def late(self) -> bool:
        """This turn has had its time."""
        return self.settings.clock() > self._deadline

    def ask(self, session: Session) -> None:
        """The session has something to be looked at."""
        self._asking[session] = None
        self.turn()

    def _share(self) -> float:
        """When that part of a turn is over which one kind of work may take before the next."""
        return min(self._deadline, self.settings.clock() + self.settings.turn / 3)

    def _look(self) -> None:
        """Some of what each client asks."""
        for session in list(self._asking):
            if not session.work():
                self._asking.pop(session, None)

    def _next_turn(self) -> None:
        if self._later is None and not self._closing:
            self._later = asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._later = None
        self.turn()

    def _encoded(self, strands: Sequence[Strand]) -> None:
        self._ready.update(dict.fromkeys(strands))
        self.turn()

    def _pump(self, strand: Strand) -> None:
        begun = False
        while strand.queue and strand.born and not strand.gone and not strand.session.closed:
            if begun and self.late:
                self.wake(strand)
                return
            begun = True
            item = strand.queue[0]
            try:
                if not self._lowering.lower(strand, item):
                    return
            except Encoding as job:
                job.waiting[strand] = None
                return
            except OpError as error:
                strand.queue.popleft()
                assert not isinstance(item, Close)
                self.fail(strand, item.op, error)
                if isinstance(item, Fork):
                    self.kill_children(strand, item, consequence(strand.cause or error))
                continue
            except Exception as error:  # a fault of ours in one op must not touch the other strands
                log.exception("lowering op %s of strand %d failed", type(item).__name__, strand.number)
                strand.queue.popleft()
                op = strand.last_op if isinstance(item, Close) else item.op
                self.fail(strand, op, OpError("internal", f"{type(error).__name__}: {error}"))
                continue
            strand.queue.popleft()
            self.wake_watchers(strand)
            self.settle(strand)


def _item(grown: list[Any]) -> wire.ExtendStrand:
    return wire.ExtendStrand(sid=grown[0], ops=tuple(grown[1:]))
