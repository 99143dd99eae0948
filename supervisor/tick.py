"""The supervision of one run: observe, judge, decide, act, deliver. One call of `tick` is one round.

Nothing that a decision needs lives here only: this object can be thrown away at any line and made again.
"""

import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from contract import events as ev
from contract.config import RunConfig, read_resolved
from contract.files import FileLock
from contract.fold import fold
from contract.history import History
from contract.journal import JournalReader
from contract.layout import RunDir
from contract.requests import remove_request
from contract.states import JobState
from supervisor.adapters.act import Hands
from supervisor.adapters.copiers import Copiers, LastCopies, made
from supervisor.adapters.evidence import evidence_news
from supervisor.adapters.leadership import Leadership, OvertakenError
from supervisor.adapters.profiles import profile_news
from supervisor.adapters.queues import Queues, job_id_of, recorded_end
from supervisor.adapters.rundir import Observer
from supervisor.adapters.watcher import Watcher
from supervisor.book import Book, journal_trouble
from supervisor.care import allowed, complete, ended, judged, over, wished
from supervisor.core import actions as do
from supervisor.core import copies, notices, queue_silence, recovery, storm, troubles
from supervisor.core.case import Case
from supervisor.core.decide import decide
from supervisor.core.digest import digests
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, Neighbour, Observation
from supervisor.core.outbox import addressed
from supervisor.core.urgent import waits_for_queue
from supervisor.core.verdict import Verdict
from supervisor.mail import Mail
from supervisor.record import judgement
from supervisor.seen import Shown

_BACKOFF_MAX_S = 60.0
_TELL_AFTER = 3  # rounds that broke in a row before people are told
_CREATION_S = 5.0
_DIGESTS_S = 2 * 86_400.0
_CHECK_S = 1.0  # between two looks at a run that sleeps or is locked by somebody else


@dataclass(frozen=True, kw_only=True)
class World:
    """What all runs of one supervisor share. `clock`: UTC seconds; `monotonic`: this process's own clock."""

    leadership: Leadership
    queues: Queues
    mail: Mail
    say: Callable[[str], None]
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    watcher: Watcher = field(default_factory=Watcher)
    regain: Callable[[], None] = lambda: None
    """Called before what all runs share is used: waits for a turn where a slow read has cost this run its own."""
    version: str = ""
    histories: Callable[[], Iterable[History]] = tuple  # of all its runs


@dataclass(kw_only=True)
class _Active:
    """What we hold while we hold the run's lock."""

    lock: FileLock
    config: RunConfig
    book: Book
    observer: Observer
    hands: Hands
    copiers: Copiers
    copying: bool = True  # whether a run that is over still waits for its last copies
    complete: bool = False  # whether there has been a complete look (rule 1)
    sentence: str = ""


class Supervision:
    """One run. `due_at` is when `tick` wants to be called next (monotonic)."""

    def __init__(self, run: RunDir, world: World) -> None:
        self.run = run
        self.due_at = 0.0
        self._seen_at = world.monotonic()
        self.looked = False  # whether everything due has been done once, or there is nothing to do
        self._world = world
        self._active: _Active | None = None
        self._reader = JournalReader(run.journal)
        self._history = History()
        self._last_copies = LastCopies(run)
        self._broken = 0
        self._said = ""
        self.shown: Shown | None = None  # the last look, for whoever shows it
        self._config: RunConfig | None = None  # of a run that is over: read once

    @property
    def broken(self) -> bool:
        """Whether the rounds of this run fail again and again."""
        return self._broken >= _TELL_AFTER

    @property
    def resting(self) -> bool:
        """Whether nothing is left to do for now, but perhaps to tell what is held back by quiet hours or a silence."""
        active = self._active
        if active is None:
            return True
        history = active.book.history
        held = self._world.mail.held(active.book, active.config.alerts.receivers, self._world.clock())
        return ended(history) and held and not active.copying

    @property
    def history(self) -> History:
        return self._active.book.history if self._active else self._history

    @property
    def active(self) -> bool:
        """Whether we hold the run's lock."""
        return self._active is not None

    def tick(self) -> None:
        """One round. A run that breaks is put off and told; it never stops the others."""
        try:
            self._round()
            self._broken = 0
        except OvertakenError:
            raise
        except (
            Exception
        ) as error:  # the one catch-all: what broke is this run's round, and we do not know what
            self._broken += 1
            self._put_off(error)

    def release(self) -> None:
        """Let go of the run; its job goes on."""
        if self._active is None:
            return
        self._reader = JournalReader(self.run.journal)
        self._history = fold(self._reader.new())  # not the book's: the file may have been replaced
        self._active.copiers.close()
        self._world.mail.leave(self.run.run_id)
        self._active.book.close()
        self._active.observer.close()
        self._active.lock.release()
        self._active = None
        self._world.queues.forget(self.run)

    def _round(self) -> None:
        if self._active is None:
            self.due_at = self._world.monotonic() + _CHECK_S
            self._active = self._take_up()
            if self._active is None:
                return
        active = self._active
        self.due_at = self._world.monotonic() + active.config.supervisor.tick_s
        self._look_and_act(active)
        self._world.regain()
        self._world.mail.deliver(active.book, active.config.alerts.receivers, self._world.clock())
        if self._settled(active):
            self._say_once("left alone from now on")
            self.release()

    # --- taking up and letting go

    def _take_up(self) -> _Active | None:
        """Take the run's lock, if the run needs care and nobody else has it."""
        if (reason := self._not_ours()) or not self._needs_care():
            self._say_once(reason)
            self.looked = True
            return None
        if not self._history.attempts and self._world.monotonic() - self._seen_at < _CREATION_S:
            return None  # `submit` is about to take the lock and hand in the first attempt
        self._world.regain()
        self._world.leadership.check()
        lock = FileLock(self.run.lock)
        if not lock.acquire(f"supervisor, pid {os.getpid()}, epoch {self._world.leadership.epoch}\n"):
            self._say_once("another process holds the run's lock; waiting for it")
            return None
        try:
            return self._open(lock)
        except BaseException:
            lock.release()
            raise

    def _open(self, lock: FileLock) -> _Active:
        config = read_resolved(self.run.config)
        world = self._world
        book = Book(self.run, clock=world.clock, epoch=world.leadership.epoch, guard=world.leadership.check)
        for problem in book.problems:
            world.say(f"{self.run.run_id}: the journal has a line that was skipped: {problem}")
        hands = Hands(
            book=book,
            config=config,
            queue=world.queues.client(config),
            clock=world.monotonic,
            say=self._say,
        )
        book.append(ev.SupervisorStarted(host=os.uname().nodename, pid=os.getpid(), version=world.version))
        world.regain()
        world.mail.join(book, config.alerts.receivers)
        copiers = Copiers(self.run, world.leadership.epoch, config.alerts.secrets, self._say)
        return _Active(
            lock=lock,
            config=config,
            book=book,
            observer=Observer(self.run, watcher=world.watcher),
            hands=hands,
            copiers=copiers,
        )

    def _not_ours(self) -> str:
        """Why this run is not for us, "" when it is."""
        owner = self.run.path.stat().st_uid
        if owner != os.getuid():
            return f"belongs to uid {owner}, this supervisor runs as uid {os.getuid()}: left alone"
        self._history = fold(self._reader.new(), self._history)
        trouble = journal_trouble(self.run, self._history)
        return f"left alone: {trouble}" if trouble else ""

    def _needs_care(self) -> bool:
        """Judged from a reading that takes no lock and writes nothing."""
        history = self._history
        asked = self.run.requests.is_dir() and any(self.run.requests.glob("*.json"))
        if asked:
            return True
        if over(history):
            recent = 0 <= self._world.clock() - history.state_at < copies.LINGER_S
            return (recent and self._last_copies.missing()) or self._digest_waits(history)
        watched = read_resolved(self.run.config).metadata.watched
        if not watched:
            self._say_once("its labels switch the supervisor off: left alone")
        return watched

    def _digest_waits(self, history: History) -> bool:
        """Whether a run that is over still belongs into a daily digest."""
        now = self._world.clock()
        if not history.state.final or now - history.state_at > _DIGESTS_S:
            return False
        if self._config is None:
            self._config = read_resolved(self.run.config)
        nothing = Observation(attempt=0, generation=0, job=JobLook(state=JobState.UNKNOWN))
        return bool(digests(history, nothing, self._config, now))

    def _settled(self, active: _Active) -> bool:
        history = active.book.history
        if any(self.run.requests.glob("*.json")):
            return False
        if not active.config.metadata.watched:
            newest = history.newest
            submitted = newest is None or newest.ended is None or history.state.final
            return submitted and not history.outbox
        return over(history) and not active.copying

    # --- the round

    def _look_and_act(self, active: _Active) -> None:
        observation = self._observe(active)
        book = active.book
        self._record_news(active, observation)
        now = self._world.clock()
        verdict = judge(observation, book.history, active.config, now)
        self._tell_the_log(active, observation, verdict)
        if verdict.failed and not judged(book.history, observation):
            book.append(judgement(observation, verdict))
        if notices.is_new(book.history, verdict):
            book.append(judgement(observation, verdict))
        recovered = recovery.recovered(book.history, observation, now)
        if recovered is not None:
            book.append(recovered)
        config = wished(active.config, book.history, observation)
        if active.complete:
            active.hands.again()
        # Read afresh: what was just journalled must not lie in the future of the decision.
        actions = decide(book.history, observation, verdict, config, self._world.clock())
        self.shown = Shown(
            at=now, observation=observation, verdict=verdict, actions=tuple(actions), config=config
        )
        for action in allowed(actions, observation, complete=active.complete):
            if isinstance(action, do.Wait) and action.reason.startswith(storm.HELD):
                self._say_once(f"{storm.HELD}: this restart waits for its turn")
            active.hands.carry_out(action)
        active.config = active.hands.config  # a request may have changed it
        case = Case(
            history=book.history,
            observation=observation,
            verdict=verdict,
            config=active.config,
            now=self._world.clock(),
        )
        if waits_for_queue(case):
            self._world.queues.hurry()
        self._copy(active, case)
        self.looked = active.complete

    def _record_news(self, active: _Active, observation: Observation) -> None:
        """What has come about by itself since the last look."""
        book = active.book
        for body in recovery.news(book.history, observation):
            book.append(body)
        for body in queue_silence.news(book.history, observation):
            book.append(body)
        for body in notices.over(book.history, observation, active.config):
            book.append(body)
        for kept in evidence_news(self.run, book.history, observation, active.config, self._world.clock()):
            book.append(kept)
        for profiled in profile_news(self.run, book.history, observation, active.config):
            book.append(profiled)

    def _copy(self, active: _Active, case: Case) -> None:
        """Checkpoints to other places, by processes of their own: a slow place holds nothing up here."""
        active.copying = active.copying and bool(made(active.config))
        if not active.complete or not made(active.config):
            return
        self._world.leadership.check()
        active.copiers.tend(copies.due(case))
        active.copying = copies.pending(case)

    def _observe(self, active: _Active) -> Observation:
        history = active.book.history

        def job(number: int) -> JobLook:
            recorded = recorded_end(history, number)
            job_id = job_id_of(history, number)
            self._world.regain()
            return recorded or self._world.queues.look(self.run, active.config, number, job_id)

        observation = active.observer.look(active.config, job, self._world.monotonic())
        self._world.regain()
        active.complete = active.complete or complete(observation)
        open_requests = tuple(item for item in observation.requests if item.id not in active.book.answered)
        for request in observation.requests:
            if request.id in active.book.answered:  # answered before a crash that kept us from removing it
                remove_request(self.run, request.id)
        return replace(observation, requests=open_requests, neighbours=self._neighbours(history))

    def _neighbours(self, history: History) -> tuple[Neighbour, ...]:
        """The other runs that have failed, as long as this one has something to restart."""
        if history.open_failure is None:
            return ()
        now = self._world.clock()
        found = (storm.neighbour(item, now) for item in self._world.histories() if item.run != history.run)
        return tuple(item for item in found if item is not None)

    # --- words

    def _tell_the_log(self, active: _Active, observation: Observation, verdict: Verdict) -> None:
        """One line when the picture changes, not one a tick (the numbers in it move all the time)."""
        key = f"{verdict.kind} {observation.attempt} {observation.generation} {observation.problems}"
        if key != active.sentence:
            active.sentence = key
            place = f"attempt {observation.attempt} generation {observation.generation}"
            self._say(f"{place} {verdict.kind}: {verdict.reason}")
            for problem in observation.problems:
                self._say(f"cannot be read: {problem}")

    def _put_off(self, error: Exception) -> None:
        self.looked = False  # something is left to do, though nothing is held until then
        wait = min(_BACKOFF_MAX_S, 2.0 ** (self._broken - 1))
        self.due_at = self._world.monotonic() + wait
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}"
        place = f"{Path(where.filename).name} line {where.lineno}"
        self._say(f"this round broke ({place}): {what}; again in {wait:.0f} s")
        if self._broken >= _TELL_AFTER:
            self._tell_people(what)
        self.release()

    def _tell_people(self, what: str) -> None:
        """Through the journal, if that still works; the log has it in any case."""
        active = self._active
        if active is None:
            return
        try:
            alert = troubles.broken(active.book.history, what)
            if alert is not None:
                active.book.append(replace(alert, receivers=addressed(alert, active.config.alerts.receivers)))
        except OvertakenError:
            raise
        except Exception as error:  # what broke the round may break this too
            self._say(f"people could not be told: {type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        self._world.say(f"{self.run.run_id}: {text}")

    def _say_once(self, text: str) -> None:
        if text and text != self._said:
            self._say(text)
        self._said = text or self._said
