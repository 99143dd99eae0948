"""A person's wish: handed to the supervisor that is alive, or carried through by ourselves when there is none."""

import contextlib
import getpass
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.config import ConfigError, read_resolved
from contract.control import read_control
from contract.events import Event, EvidenceKept, ProfileKept, RequestDone
from contract.files import FileLock, lock_is_held
from contract.fold import fold
from contract.history import History
from contract.journal import JournalReader
from contract.layout import Root, RunDir
from contract.requests import Request, RequestKind, new_id, read_requests, write_request
from contract.states import JobState
from slurm.patience import telling
from supervisor.adapters.leadership import Leadership, RefusedError, take
from supervisor.adapters.post import TIMEOUT_S
from supervisor.adapters.requests import answer
from supervisor.book import Book
from supervisor.core.heard import heard
from supervisor.core.reasons import chinese
from supervisor.daemon import make_world
from supervisor.tick import Supervision

_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`digests`: language → what the text says of what was kept, for those who read another language."""

    ok: bool
    text: str
    digests: Mapping[str, str] = field(default_factory=dict)

    def told(self, language: str) -> str:
        """The outcome in the reader's language; paths and what others said stay."""
        if language != "zh":
            return self.text
        english = self.digests.get("en", "")
        text = self.text.replace(english, self.digests.get("zh", "")) if english else self.text
        return "\n".join(chinese(line, {}) for line in text.splitlines())


def ask(
    root: Root,
    run: RunDir,
    kind: RequestKind,
    *,
    wait_s: float,
    say: Callable[[str], None],
    args: Mapping[str, Any] | None = None,
) -> Outcome:
    """Write the request, and see to it that it is answered. Takes the locks when no supervisor holds them."""
    owner = run.path.stat().st_uid
    if owner != os.getuid():
        raise PermissionError(
            f"{run.run_id} belongs to uid {owner}, not to you; only its owner can {kind} it"
        )
    request = Request(id=new_id(time.time()), kind=kind, by=getpass.getuser(), args=args or {})
    write_request(run, request)
    watch = _Watch(run, request.id)
    deadline = time.monotonic() + wait_s
    with telling(say, f"waits for {_waited_for(run)}, for {wait_s:.0f} s at most (--wait)"):
        outcome = _outcome(root, run, kind, watch, deadline, say)
    return outcome or Outcome(
        ok=False, text=f"not answered within {wait_s:.0f} s; request {request.id} stays open. {watch.where}"
    )


def _waited_for(run: RunDir) -> str:
    with contextlib.suppress(ConfigError):
        return "Slurm" if read_resolved(run.config).job.executor == "slurm" else "the job"
    return "the outcome"


def _outcome(
    root: Root, run: RunDir, kind: RequestKind, watch: "_Watch", deadline: float, say: Callable[[str], None]
) -> Outcome | None:
    """The answer to the request, whoever gives it; None when the time is up."""
    owner = run.path.stat().st_uid
    while time.monotonic() < deadline:
        if (done := watch.look()) is not None:
            return watch.outcome(done)
        if not lock_is_held(root.supervisor(owner).lock):
            leadership = _lead(root, kind, say)
            if leadership is not None and kind.only_told:
                _hear_ourselves(run, leadership, say)
            elif leadership is not None:
                return _ourselves(run, leadership, watch, deadline, say)
        time.sleep(_POLL_S)
    return None


def _lead(root: Root, kind: RequestKind, say: Callable[[str], None]) -> Leadership | None:
    try:
        return take(root, command=kind.value)
    except RefusedError as error:
        say(str(error))  # somebody was quicker: then it answers
        return None


def _hear_ourselves(run: RunDir, leadership: Leadership, say: Callable[[str], None]) -> None:
    """Answer what concerns the alerts, and leave everything else of the run alone."""
    lock = FileLock(run.lock)
    try:
        if not lock.acquire(f"ciuic, pid {os.getpid()}, epoch {leadership.epoch}\n"):
            return  # whoever holds it answers, or the next try does
        book = Book(run, clock=time.time, epoch=leadership.epoch, guard=leadership.check)
        try:
            for action in heard(book.history, read_requests(run), time.time()):
                answer(book, action, say)
        finally:
            book.close()
    finally:
        lock.release()
        leadership.release()


def _ourselves(
    run: RunDir, leadership: Leadership, watch: "_Watch", deadline: float, say: Callable[[str], None]
) -> Outcome:
    """Be the supervisor of this one run until the wish is carried out."""
    say("no supervisor is running; doing it from here")
    world = make_world(leadership, say)
    supervision = Supervision(run, world)
    try:
        while time.monotonic() < deadline:
            leadership.check()
            leadership.beat()
            supervision.tick()
            done = watch.look()
            if done is not None and (not done.ok or (watch.at_rest and watch.passed_on)):
                return watch.outcome(done)
            time.sleep(max(_POLL_S, min(1.0, supervision.due_at - time.monotonic())))
        why = _unheard(supervision)
        return Outcome(ok=False, text=f"still pending when the time was up{why}. {watch.where}")
    finally:
        world.mail.wait(TIMEOUT_S + 1)
        supervision.release()
        leadership.release()


def _unheard(supervision: Supervision) -> str:
    """What the queue did not answer, in brackets; "" where it did."""
    job = supervision.shown.observation.job if supervision.shown else None
    return f" ({job.reason})" if job and job.state is JobState.UNKNOWN and job.reason else ""


class _Watch:
    """Follows the journal for the answer to one request."""

    def __init__(self, run: RunDir, request_id: str) -> None:
        self._run = run
        self._reader = JournalReader(run.journal)
        self._id = request_id
        self._done: RequestDone | None = None
        self._history = History()
        self._digests: Mapping[str, str] = {}

    def look(self) -> RequestDone | None:
        events: list[Event] = self._reader.new()
        self._history = fold(events, self._history)
        for event in events:
            match event.body:
                case RequestDone() if event.body.id == self._id:
                    self._done = event.body
                case EvidenceKept() | ProfileKept() if event.body.order == self._id:
                    self._digests = event.body.digest
                case _:
                    pass
        return self._done

    def outcome(self, done: RequestDone) -> Outcome:
        """The answer, with the digest that was made for it."""
        return Outcome(ok=done.ok, text=done.outcome, digests=self._digests)

    @property
    def at_rest(self) -> bool:
        """Whether nothing of the wish is left to do: the job is over, or the one that was wanted is submitted."""
        newest = self._history.newest
        if self._history.state.final:
            return newest is None or newest.ended is not None or newest.submitted_at is None
        return newest is not None and newest.submitted_at is not None and newest.ended is None

    @property
    def passed_on(self) -> bool:
        """Whether the agents of a job that goes on can read what was set: they know nothing of the journal."""
        try:
            control = read_control(self._run)
        except ValueError:  # damaged: the next round writes it anew
            return False
        newest = self._history.newest
        if control is None or newest is None or self._history.state.final or control.attempt != newest.number:
            return True
        return dict(control.hot) == dict(self._history.hot)

    @property
    def where(self) -> str:
        why = f": {self._history.reason}" if self._history.reason else ""
        return f"The run is {self._history.state.value}{why}"
