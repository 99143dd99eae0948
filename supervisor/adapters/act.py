"""Carries out what was decided: the intent into the journal, then the effect, then the outcome.

Every effect may meet a world in which it has happened already (we were killed in between): doing it again is harmless.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any, assert_never

from contract import events as ev
from contract.config import RunConfig
from contract.control import Control, Order, OrderKind, read_control, write_control
from contract.history import AttemptHistory, History
from contract.layout import RunDir
from contract.states import ControlPhase, JobState
from slurm.find import Finding, find_attempt
from slurm.job import read_job
from slurm.nodes import keep_facts, list_nodes
from slurm.patience import Patience
from slurm.queue import Job, QueueClient
from slurm.request import attempt_tag
from slurm.submit import Submitted, submit_attempt
from supervisor.adapters.requests import answer, reconfigure
from supervisor.adapters.rundir import highest_used
from supervisor.book import Book
from supervisor.core import actions as do
from supervisor.core.outbox import addressed
from supervisor.core.placement import affordable

_KEPT_ORDERS = 16
_AGAIN_S = 10.0  # between two identical orders for the queue
_ASK_S = 5.0  # a round waits no longer for an answer of Slurm; the next one asks again
_LOOK_AGAIN_S = 5.0  # between two questions about a submission in doubt


@dataclass(kw_only=True)
class Hands:
    """The hands of the supervision of one run. `clock` is monotonic; `say` takes lines for the log."""

    book: Book
    config: RunConfig
    queue: QueueClient
    clock: Callable[[], float]
    say: Callable[[str], None]
    _done_at: dict[str, float] = field(default_factory=dict)
    _absent: dict[int, float] = field(default_factory=dict)  # attempt → when it was looked for in vain first
    _refused: set[int] = field(
        default_factory=set
    )  # attempts whose last submission was refused without a doubt

    _unheard: do.Cancel | None = None  # what the queue must be asked for again

    @property
    def history(self) -> History:
        return self.book.history

    def carry_out(self, action: do.Action) -> None:
        """One action. Raises OSError when the world does not let it happen; the next tick finds out and repeats."""
        match action:
            case do.Submit() | do.Prepare() | do.Go() | do.SaveAndLeave() | do.Cancel() | do.TakeEvidence():
                self._touch_the_job(action)
            case do.CloseAttempt() | do.SetBounds() | do.SetState() | do.Answer() | do.Tell():
                self._write_down(action)
            case do.Reconfigure():
                self.config = reconfigure(self.book, action.request, self.say) or self.config
            case do.PassOn():
                self._pass_on(action)
            case do.Wait():
                pass
            case _:
                assert_never(action)

    def again(self) -> None:
        """What the queue did not hear when it was asked."""
        if self._unheard is not None:
            self._cancel(self._unheard)

    def _touch_the_job(
        self, action: do.Submit | do.Prepare | do.Go | do.SaveAndLeave | do.Cancel | do.TakeEvidence
    ) -> None:
        match action:
            case do.Submit():
                self._submit(action)
            case do.Prepare():
                self._prepare(action)
            case do.Go():
                self._go(action)
            case do.SaveAndLeave():
                self._save_and_leave(action)
            case do.Cancel():
                self._cancel(action)
            case do.TakeEvidence():
                self._take_evidence(action)

    def _write_down(self, action: do.CloseAttempt | do.SetBounds | do.SetState | do.Answer | do.Tell) -> None:
        match action:
            case do.CloseAttempt():
                self._close(action)
            case do.SetBounds():
                self.say(f"jumps sampler positions {list(action.skip_windows)}: {action.reason}")
                self.book.append(
                    ev.BoundsSet(
                        min_step=action.min_step,
                        max_step=action.max_step,
                        skip_windows=action.skip_windows,
                        reason=action.reason,
                    )
                )
            case do.SetState():
                self.say(f"state {action.state}: {action.reason}")
                self.book.append(ev.StateChanged(state=action.state, reason=action.reason))
            case do.Answer():
                answer(self.book, action, self.say)
            case do.Tell():
                if all(state.alert.id != action.alert.id for state in self.history.outbox.values()):
                    receivers = addressed(action.alert, self.config.alerts.receivers)
                    self.book.append(replace(action.alert, receivers=receivers))

    def _attempt(self, number: int) -> AttemptHistory | None:
        return next((item for item in self.history.attempts if item.number == number), None)

    def _submit(self, action: do.Submit) -> None:
        known = self._attempt(action.attempt)
        if known is not None and known.submitted_at is not None:
            return
        still = [
            item.number for item in self.history.attempts if item.number != action.attempt and not item.ended
        ]
        if still:  # rule 5: never two at once, whatever was decided
            raise RuntimeError(
                f"attempt {action.attempt} must wait: attempt {still[0]} is not recorded as ended"
            )
        if known is not None and not self._surely_absent(action.attempt):
            return
        if known is None:
            self._forgotten_must_be_over(action.attempt)
        exclude = self._affordable(action.exclude)
        if known is None:
            tag = attempt_tag(self.book.run.run_id, action.attempt)
            self.book.append(
                ev.AttemptIntended(attempt=action.attempt, tag=tag, reason=action.reason, exclude=exclude)
            )
        self._write(Control(attempt=action.attempt, generation=1, phase=ControlPhase.PREPARE))
        self.say(f"submits attempt {action.attempt}: {action.reason}")
        self.book.guard()
        self._refused.discard(action.attempt)
        self._absent.pop(action.attempt, None)
        answer = submit_attempt(self.book.run, self.config, action.attempt, exclude)
        if isinstance(answer, Submitted):
            self.book.append(ev.AttemptSubmitted(attempt=action.attempt, job_id=answer.job_id))
            return
        self.say(f"attempt {action.attempt} was not accepted: {answer.reason}")
        if answer.doubtful:
            self._surely_absent(action.attempt)
            known = self._attempt(action.attempt)
            if known is not None and known.submitted_at is not None:  # it had got in: adopted
                return
        else:
            self._refused.add(action.attempt)
        self.book.append(
            ev.SubmitFailed(attempt=action.attempt, reason=answer.reason, permanent=answer.permanent)
        )

    def _forgotten_must_be_over(self, number: int) -> None:
        """A journal that was restored or damaged may not know an attempt whose job still runs (rule 5)."""
        run = self.book.run
        if (used := highest_used(run)) >= number:
            raise RuntimeError(
                f"attempt {number} would use the directory of attempt {used} or one before it, "
                "which the journal does not know"
            )
        forgotten = [item for item in range(1, used + 1) if self._attempt(item) is None]
        jobs = [Job(run=run, attempt=item, job_id=_recorded_id(run, item)) for item in forgotten]
        for job, seen in ((job, self.queue.look([job])[job.key]) for job in jobs):
            if seen.state.alive or seen.state is JobState.UNKNOWN:
                raise RuntimeError(
                    f"attempt {number} must wait: the journal does not know attempt {job.attempt}, "
                    f"and its job {job.job_id or '(no number)'} is {seen.state} ({seen.reason})"
                )
        if forgotten:
            names = ", ".join(str(item) for item in forgotten)
            self.say(f"the journal does not know attempt {names}: their numbers are not used again")

    def _affordable(self, exclude: tuple[str, ...]) -> tuple[str, ...]:
        """The exclusions without nodes that are gone (sbatch would refuse them) and without more than the job can spare."""
        if not exclude:
            return ()
        job = self.config.job
        rows = list_nodes(partition=job.partition, ask=Patience(_ASK_S))
        if rows is None:  # then sbatch will hardly answer either
            return exclude
        usable = frozenset(name for name, row in rows.items() if row.usable and name not in job.exclude)
        share = self.config.supervisor.exclude_share
        kept = affordable(exclude, usable, frozenset(rows), job.nodes + job.spare_nodes, share)
        if kept != exclude:
            dropped = ", ".join(node for node in exclude if node not in kept)
            self.say(
                f"not excluded after all: {dropped} (unknown to Slurm, more than {share:.0%} of the "
                f"partition's {len(rows)} nodes, or too few would be left)"
            )
        return kept

    def _surely_absent(self, attempt: int) -> bool:
        """Whether no job of this attempt exists. One that does is adopted; in doubt we ask again later."""
        if not self._due(f"find {attempt}", _LOOK_AGAIN_S):
            return False
        found = find_attempt(self.book.run, attempt, Patience(_ASK_S))
        if found.finding is Finding.ABSENT:
            if not self._certainly(attempt):
                return False
            del self._done_at[f"find {attempt}"]
            return True
        if found.finding is Finding.FOUND:
            self.say(f"attempt {attempt} exists already (job {found.job_id or 'unknown'}): adopted")
            self.book.append(ev.AttemptSubmitted(attempt=attempt, job_id=found.job_id, adopted=True))
        else:
            self.say(f"whether attempt {attempt} was submitted cannot be told: {found.reason}")
        return False

    def _certainly(self, attempt: int) -> bool:
        """Whether one "not there" is enough. What Slurm was just asked to take may show itself a moment later."""
        if self.config.job.executor == "local" or attempt in self._refused:
            return True
        return self.clock() - self._absent.setdefault(attempt, self.clock()) >= _LOOK_AGAIN_S

    def _prepare(self, action: do.Prepare) -> None:
        members = action.members
        attempt = self._attempt(action.attempt)
        known = [item for item in attempt.generations if item.number == action.generation] if attempt else []
        if known and known[0].intended_at is not None:
            members = known[0].members  # a prepare is never rewritten with other members
        else:
            self.say(f"orders generation {action.generation} of attempt {action.attempt}: {action.reason}")
            self.book.append(
                ev.GenerationIntended(
                    attempt=action.attempt,
                    generation=action.generation,
                    members=members,
                    reason=action.reason,
                )
            )
        self._write(
            Control(
                attempt=action.attempt,
                generation=action.generation,
                phase=ControlPhase.PREPARE,
                members=members,
            ),
            *([Order(id=action.evidence, kind=OrderKind.EVIDENCE)] if action.evidence else []),
        )
        self._ask_the_scheduler(action.attempt, action.generation - 1)

    def _go(self, action: do.Go) -> None:
        attempt = self._attempt(action.attempt)
        known = [item for item in attempt.generations if item.number == action.generation] if attempt else []
        if not known or known[0].went_at is None:
            self.book.append(
                ev.GenerationWent(
                    attempt=action.attempt,
                    generation=action.generation,
                    members=action.members,
                    master=action.master,
                    port=action.port,
                )
            )
        self._write(
            Control(
                attempt=action.attempt,
                generation=action.generation,
                phase=ControlPhase.GO,
                members=action.members,
                master=action.master,
                port=action.port,
            )
        )

    def _take_evidence(self, action: do.TakeEvidence) -> None:
        current = read_control(self.book.run)
        if current is None or current.attempt != action.attempt:
            return
        self.say(f"has the agents keep where the workers stand: {action.reason}")
        self._write(current, Order(id=action.order, kind=action.kind))
        if action.kind is OrderKind.EVIDENCE:
            self._ask_the_scheduler(action.attempt, current.generation)

    def _pass_on(self, action: do.PassOn) -> None:
        current = read_control(self.book.run)
        if current is None or current.attempt != action.attempt:
            return
        self.say(f"passes on to rank 0: {action.kind or 'settings'} ({action.reason})")
        args: dict[str, Any] = {}
        if action.kind == OrderKind.PROFILE:
            args = {"steps": action.steps, "ranks": list(action.ranks)}
            if action.order not in self.history.profiles_asked:
                self.book.append(
                    ev.ProfileAsked(
                        order=action.order,
                        attempt=current.attempt,
                        generation=current.generation,
                        reason=action.reason,
                        steps=action.steps,
                        ranks=action.ranks,
                    )
                )
        orders = [Order(id=action.order, kind=action.kind, args=args)] if action.order else []
        self._write(current, *orders)

    def _ask_the_scheduler(self, attempt: int, generation: int) -> None:
        """What Slurm says of the nodes of a failure, kept beside the agents' evidence. Nobody waits for it."""
        known = self._attempt(attempt)
        found = [item for item in known.generations if item.number == generation] if known else []
        failure = found[0].failure if found else None
        if failure is None or not failure.nodes or self.config.job.executor == "local":
            return
        path = self.book.run.attempt(attempt).evidence(generation) / "scheduler.txt"
        Thread(target=keep_facts, args=(failure.nodes, path), daemon=True).start()

    def _save_and_leave(self, action: do.SaveAndLeave) -> None:
        current = read_control(self.book.run)
        if current is None or current.attempt != action.attempt or current.phase is ControlPhase.SAVE:
            return
        self.say(f"asks attempt {action.attempt} to save and leave: {action.reason}")
        self._write(replace(current, phase=ControlPhase.SAVE))

    def _cancel(self, action: do.Cancel) -> None:
        attempt = self._attempt(action.attempt)
        if attempt is None or attempt.ended:
            self._unheard = None
            return
        if attempt.cancel is None:
            self.book.append(ev.CancelIntended(attempt=action.attempt, reason=action.reason))
        if not self._due(f"cancel {action.attempt} {action.force}"):
            return
        if action != self._unheard:
            self.say(f"ends attempt {action.attempt}{' by force' if action.force else ''}: {action.reason}")
        self.book.guard()
        job = Job(run=self.book.run, attempt=action.attempt, job_id=attempt.job_id)
        heard = self.queue.cancel(job, force=action.force)
        if not heard and action != self._unheard:
            self.say(f"the queue has not heard that attempt {action.attempt} is to end; it is asked again")
        self._unheard = None if heard else action

    def _close(self, action: do.CloseAttempt) -> None:
        attempt = self._attempt(action.attempt)
        if attempt is not None and attempt.ended is None:
            self.book.append(
                ev.AttemptEnded(attempt=action.attempt, job_state=action.job_state, reason=action.reason)
            )

    def _write(self, control: Control, *orders: Order) -> None:
        """Replace control.json, with the resume bounds of the history and what was set while running."""
        try:
            current = read_control(self.book.run)
        except ValueError:  # damaged; what we write now is whole again
            current = None
        wanted = replace(
            control,
            min_step=self.history.min_step,
            max_step=self.history.max_step,
            skip_windows=self.history.skip_windows,
            hot=dict(self.history.hot),
            orders=_with(current.orders if current and current.attempt == control.attempt else (), orders),
        )
        if current != wanted:
            self.book.guard()
            write_control(self.book.run, wanted)

    def _due(self, what: str, after_s: float = _AGAIN_S) -> bool:
        now = self.clock()
        last = self._done_at.get(what)
        if last is not None and now - last < after_s:
            return False
        self._done_at[what] = now
        return True


def _with(orders: tuple[Order, ...], more: tuple[Order, ...]) -> tuple[Order, ...]:
    """The newest orders, each once."""
    return tuple({order.id: order for order in (*orders, *more)}.values())[-_KEPT_ORDERS:]


def _recorded_id(run: RunDir, attempt: int) -> str:
    record = read_job(run, attempt)
    return record.job_id if record else ""
