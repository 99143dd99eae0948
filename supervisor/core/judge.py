"""What a look at a run means. Pure: the time is an argument, and the first rule that matches wins."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from contract.config import RunConfig
from contract.history import History
from contract.states import Cause, JobState, VerdictKind
from supervisor.core.ends import WELL, ends, judge_ends
from supervisor.core.hang import judge_hang
from supervisor.core.job_words import explain_job, node_by_number
from supervisor.core.limits import limit_for
from supervisor.core.log_words import with_logs
from supervisor.core.look import MUTE_S, Look, some
from supervisor.core.nodes import (
    judge_gave_up,
    judge_lost,
    judge_problems,
    judge_saved_early,
    judge_silence,
    judge_start,
    judge_taken,
)
from supervisor.core.numbers import judge_numbers
from supervisor.core.observation import Observation
from supervisor.core.phrases import CAUSES, word
from supervisor.core.slow import judge_slow
from supervisor.core.text import one_line
from supervisor.core.verdict import Verdict

_WHY_ENDED: Mapping[JobState, tuple[Cause, str]] = MappingProxyType(
    {
        JobState.ENDED_LIMIT: (Cause.TIME_LIMIT, "the job reached its time limit"),
        JobState.ENDED_PREEMPTED: (Cause.PREEMPTED, "the job was preempted"),
        JobState.ENDED_NODE: (Cause.NODE_FAILURE, "the job lost a node"),
    }
)


def judge(observation: Observation, history: History, config: RunConfig, now: float) -> Verdict:
    """The verdict on this look. Total: some rule always matches."""
    look = Look(observation=observation, history=history, config=config, now=now)
    for rule in RULES:
        verdict = rule(look)
        if verdict is not None:
            return with_logs(verdict, observation)
    return _healthy(look)


def _unreadable(look: Look) -> Verdict | None:
    """Without control.json we do not even know what we look at."""
    observation = look.observation
    if observation.control is not None and observation.attempt > 0:
        return None
    begun = any(attempt.submitted_at is not None for attempt in look.history.attempts)
    if observation.problems or begun:
        said = (
            "; ".join(observation.problems[:3])
            or "control.json is not there, though an attempt was submitted"
        )
        return Verdict(kind=VerdictKind.UNKNOWN, reason=f"cannot be read: {said}")
    return None


def _not_submitted(look: Look) -> Verdict | None:
    """Nothing can run before an attempt was handed in."""
    newest = look.history.newest
    if newest is None:
        return Verdict(kind=VerdictKind.PENDING, reason="no attempt yet")
    if newest.submitted_at is None and newest.ended is None:
        why = f": {newest.submit_failure}" if newest.submit_failure else ""
        return Verdict(kind=VerdictKind.PENDING, reason=f"attempt {newest.number} is not submitted yet{why}")
    return None


def _overtaken(look: Look) -> Verdict | None:
    """A newer generation was ordered and control.json does not say so yet: the old one is no longer judged."""
    attempt, generation = look.history.at
    if (attempt, generation) <= (look.observation.attempt, look.observation.generation):
        return None
    what = f"generation {generation} of attempt {attempt} is ordered"
    return Verdict(kind=VerdictKind.STARTING, reason=what)


def _job_ended(look: Look) -> Verdict | None:
    """The queue is sure that the job is over, and the workers' ends did not say why."""
    if not look.job_over:
        return None
    job = look.observation.job
    said = f"the queue says {job.state}" + (f" ({job.reason})" if job.reason else "")
    if look.ending or look.pausing:  # ordered, so no failure: it has no cause
        return _ended(look, Cause.NONE, f"the job ended as it was told to: {said}")
    if job.state is JobState.ENDED_CANCELLED:
        # Not ours, so a person's (without accounting nobody can tell more): final.
        return Verdict(
            kind=VerdictKind.CANCELLED,
            reason=f"the job was cancelled, and not by the supervisor: {said}",
            cause=Cause.CANCELLED,
            step=look.observation.step,
        )
    known = _WHY_ENDED.get(job.state)
    if known is None:
        return _ended_unexplained(look, said)
    return replace(_ended(look, known[0], f"{known[1]}: {said}"), nodes=job.dead)


def _ended_unexplained(look: Look, said: str) -> Verdict:
    """No exit record tells more. Before any agent came it was the launch."""
    observation = look.observation
    if observation.job.failed:
        verdict = _ended(look, Cause.LAUNCH, f"the job could not start: {said}")
        return replace(verdict, nodes=observation.job.failed)
    if look.history.target_steps and observation.step >= look.history.target_steps > 0:
        exits = {worker.exit_code for _, worker in observation.workers}
        if observation.job.state is JobState.ENDED_OK and exits <= {0, None}:
            reason = f"the job ended well at the target step {observation.step}: {said}"
            return Verdict(kind=VerdictKind.COMPLETED, reason=reason, step=observation.step)
    told = explain_job(observation.job_lines, look.lost_before)
    if told is not None:
        words = one_line(told.text)
        by_number = node_by_number(observation.job_lines, observation.job.nodes)
        nodes = (told.blame_node,) if told.blame_node else by_number
        where = f" on {some(nodes)}" if nodes else ""
        verdict = _ended(
            look, told.cause, f"{word(CAUSES, told.cause, 'en')}{where}, as Slurm wrote ({words}): {said}"
        )
        return replace(verdict, nodes=nodes, lines=observation.job_lines, entry=told.entry.name)
    ours = [seen for seen in observation.nodes if seen.beat and seen.beat.attempt == observation.attempt]
    dead = tuple(
        seen.node for seen in ours if seen.alive is False and seen.beat and seen.beat.done_code is None
    )
    if dead:  # they had no time to say why: killed, or their machine went down
        return _ended(
            look, Cause.NODE_FAILURE, f"the agent on {some(dead)} died, and the job with it: {said}"
        )
    if not ours and not observation.exits:
        return _ended(look, Cause.LAUNCH, f"the job ended before any agent started: {said}")
    return _ended(look, Cause.UNEXPLAINED, f"the job ended and no worker's end explains it: {said}")


def _ended(look: Look, cause: Cause, reason: str) -> Verdict:
    """Detected so late at least: no agent was left to tell when, but since then no beat has moved."""
    observation = look.observation
    silent = [
        seen.silent_s for seen in observation.nodes if seen.beat and seen.beat.attempt == observation.attempt
    ]
    return Verdict(
        kind=VerdictKind.ENDED,
        reason=reason,
        cause=cause,
        step=observation.step,
        detected_s=min(silent, default=0.0),
        limits={"job_state": look.observation.job.state, "job_age_s": look.observation.job.age_s},
    )


def _requeued(look: Look) -> Verdict | None:
    """The job has run, and is pending again: requeued by an administrator or by preemption, against our wish.

    Its agents are gone, and those of its next start will refuse the attempt (rule 5): it can only be replaced.
    """
    job = look.observation.job
    ours = [
        seen for seen in look.observation.nodes if seen.beat and seen.beat.attempt == look.observation.attempt
    ]
    if job.state not in {JobState.PENDING, JobState.HELD} or not ours or look.beating or look.ending:
        return None
    if min(seen.silent_s for seen in ours) <= job.age_s:
        return None  # the answer may be older than the agents
    why = f" ({job.reason})" if job.reason else ""
    return _ended(
        look, Cause.PREEMPTED, f"job {job.job_id} was put back into the queue after it had run{why}"
    )


def _waiting_in_queue(look: Look) -> Verdict | None:
    """A job that has not started can be late for years: that is the queue's business."""
    job = look.observation.job
    if look.beating or job.state not in {JobState.PENDING, JobState.HELD}:
        return None
    held = (
        "held in the queue and will not start by itself"
        if job.state is JobState.HELD
        else "waits in the queue"
    )
    why = f" ({job.reason})" if job.reason else ""
    return Verdict(kind=VerdictKind.PENDING, reason=f"job {job.job_id or '?'} {held}{why}")


def _starting(look: Look) -> Verdict | None:
    """Until every worker has finished its first step of this generation."""
    observation = look.observation
    workers = observation.workers
    mute = not look.measurable and all(worker.idle_s > MUTE_S for _, worker in workers)
    if look.expected and len(workers) >= look.expected and mute:
        step = observation.step
        reason = f"all {len(workers)} workers run; the program reports no progress: only its exit is watched"
        return Verdict(kind=VerdictKind.HEALTHY, reason=reason, step=step)
    done = sum(look.first_step_done(worker) for _, worker in workers)
    if look.expected and len(workers) >= look.expected and done == len(workers):
        return None
    if not workers:
        there = len(look.beating)
        reason = f"{there} of {look.config.job.nodes + look.config.job.spare_nodes} agents are there, no worker yet"
    else:
        reason = f"{done} of {look.expected or len(workers)} workers have finished their first step"
    limits = {}
    if workers:
        first = workers[0][1]
        limit = limit_for(first.phase, look.config.monitor, observation.usual, first_step_done=False)
        limits = {"phase": first.phase.word, **limit.facts()}
    return Verdict(kind=VerdictKind.STARTING, reason=reason, step=observation.step, limits=limits)


def _healthy(look: Look) -> Verdict:
    step = look.observation.step
    still = [seen for seen in look.member_nodes if seen.beat and not (seen.moved or seen.alive)]
    if still:  # what was there before we came may be a dead node's last word
        silent_s = min(seen.silent_s for seen in still)
        names = some(tuple(seen.node for seen in still))
        reason = f"the beat of {names} has not been seen to move yet ({silent_s:.0f} s)"
        return Verdict(kind=VerdictKind.UNKNOWN, reason=reason, step=step, detected_s=silent_s)
    target = f" of {look.history.target_steps}" if look.history.target_steps else ""
    reason = f"all {len(look.observation.workers)} workers train, step {step}{target}"
    ended = [item for item in ends(look) if item.code not in WELL]
    if ended:
        reason = f"rank {ended[0].rank} on {ended[0].node} has ended; what explains it is due in a moment"
    return Verdict(kind=VerdictKind.HEALTHY, reason=reason, step=step)


RULES: tuple[Callable[[Look], Verdict | None], ...] = (
    _unreadable,  # we do not know what we look at
    _not_submitted,  # nothing can run yet
    _overtaken,  # an intent without its effect: it is finished first, the old generation is history
    judge_ends,  # positive evidence, the soonest and the most precise
    judge_gave_up,  # the same, from agents that had no workers yet
    judge_saved_early,
    _job_ended,  # the queue is sure; only the workers' own words are better
    _requeued,  # before the next: what has run already does not wait for its turn
    _waiting_in_queue,
    judge_taken,  # the queue's word on a node, whatever the node itself says
    judge_lost,  # a dead agent explains every standstill that follows from it
    judge_problems,  # from here on, absence is evidence: not when something could not be read
    judge_silence,  # all silent: the file system or our own eyes, not two hundred nodes
    judge_hang,
    judge_start,
    _starting,
    judge_numbers,  # all train: are the numbers right,
    judge_slow,  # and as fast as they were?
)
