"""Verdicts from how workers ended. Positive evidence: it needs no watching and no queue."""

import signal

from contract.beat import WorkerBeat
from contract.exits import WorkerExit
from contract.states import Cause, ExitCode, JobState, VerdictKind
from supervisor.core.causes import End, explain, explain_roughly, from_outside
from supervisor.core.job_words import explain_job
from supervisor.core.look import Look, some
from supervisor.core.observation import NodeSeen
from supervisor.core.verdict import Verdict

WELL = frozenset({ExitCode.FINISHED, ExitCode.SAVED})
DEAF = -10  # a program without a handler dies of the signal that asks it to save
TERMINATED = (
    143  # what an agent leaves with that got SIGTERM: somebody ended job or step, and the queue says who
)
_QUEUE_PATIENCE_S = 60.0  # a queue that says nothing for so long is not waited for
_RECORD_S = 5.0  # an exit record may be so much later than the beat that tells of the exit
_TOGETHER_S = 0.5  # ends this close on one node may be reaped in either order
# The job's end kills workers: their signals are then its echo.
_JOB_KILLS = frozenset(
    {
        JobState.ENDED_LIMIT,
        JobState.ENDED_PREEMPTED,
        JobState.ENDED_NODE,
        JobState.ENDED_CANCELLED,
        JobState.ENDING,
    }
)

_SLURM_ENDS = frozenset({Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.CANCELLED})  # what ends a job that is well


def ends(look: Look) -> tuple[End, ...]:
    """How each worker of this generation ended: records, and beats where they are sooner. Ordered ends are left out."""
    seen = {worker.rank: (node, worker) for node, worker in look.observation.workers}
    recorded = {item.rank: item for item in look.observation.exits}
    found = [_of_record(item, seen.get(item.rank)) for item in recorded.values() if not item.ordered]
    for rank, (node, worker) in seen.items():
        if rank not in recorded and worker.exit_code is not None:
            found.append(_of_beat(node, worker))
    return tuple(sorted((item for item in found if _counts(look, item)), key=lambda item: item.rank))


def judge_ends(look: Look) -> Verdict | None:
    """CRASHED, REFUSED, COMPLETED or SAVED, or None: the ends so far say nothing yet."""
    found = ends(look)
    failed = [item for item in found if item.code not in WELL]
    if failed and look.ending:
        return None  # we have asked for their end: it explains nothing
    if failed:
        if look.observation.job.state in _JOB_KILLS and all(_may_be_echo(item) for item in failed):
            return None  # the queue's word explains it better, now or in a moment
        if _told_to_end(look, failed) or _killed_with_the_job(look, failed):
            return None
        return None if _unsettled(look, failed) else _crashed(look, failed)
    saved = [item for item in found if item.code == ExitCode.SAVED]
    if look.expected and len(found) + look.observation.unlisted_ends == look.expected:
        return _saved(look, found) if saved else _completed(found)
    return None


def _of_record(item: WorkerExit, seen: tuple[NodeSeen, WorkerBeat] | None) -> End:
    age = None
    if seen is not None and seen[1].exit_code is not None:
        age = seen[1].exit_age_s + seen[0].silent_s
    return End(
        rank=item.rank,
        node=item.node,
        code=ExitCode.SAVED if item.code == DEAF else item.code,
        unsaved=item.code == DEAF,
        step=item.step,
        phase=item.phase.word,
        recorded=True,
        ended_s=item.ended_s,
        age_s=age,
        exception_type=item.exception_type,
        exception_text=item.exception_text,
        lines=item.last_lines,
    )


def _of_beat(node: NodeSeen, worker: WorkerBeat) -> End:
    assert worker.exit_code is not None
    return End(
        rank=worker.rank,
        node=node.node,
        code=ExitCode.SAVED if worker.exit_code == DEAF else worker.exit_code,
        unsaved=worker.exit_code == DEAF,
        step=worker.step,
        phase=worker.phase.word,
        recorded=False,
        age_s=worker.exit_age_s + node.silent_s,
    )


def _counts(look: Look, item: End) -> bool:
    """Ends on nodes that are no members are a zombie's; a refusal without the claim is another job's (rule 5)."""
    if look.members and item.node not in look.member_set:
        return False
    attempt = look.attempt
    foreign = (
        attempt is not None and attempt.job_id and look.observation.claim_job not in {"", attempt.job_id}
    )
    return not (item.code == ExitCode.REFUSED and foreign)


def _told_to_end(look: Look, failed: list[End]) -> bool:
    """SIGTERM comes to a whole job, agents too, by preemption, time limit or a person: the queue is asked which."""
    told = [item for item in failed if not explain_roughly(item).victim]
    if not told or any(item.code != -signal.SIGTERM for item in told):
        return False
    age_s = max(item.age_s or 0.0 for item in failed)
    beats = [seen.beat for seen in look.member_nodes if seen.beat is not None]
    left = [beat.attempt == look.observation.attempt and beat.done_code == TERMINATED for beat in beats]
    if not any(left):  # an agent that got it too says so in its next beat
        return age_s < 2 * look.config.monitor.beat_s
    if all(left):  # nothing of the step is there any more: the job is about to end
        return look.job_over or age_s < _QUEUE_PATIENCE_S
    return look.observation.job.age_s >= age_s and age_s < _QUEUE_PATIENCE_S


def _killed_with_the_job(look: Look, failed: list[End]) -> bool:
    """Whether the job is over and Slurm wrote why: whoever it had to kill, after SIGTERM was not enough, is its echo.

    The state says this of the job's last start only: one that was requeued and started again while nobody watched has
    ended otherwise since.
    """
    if not look.job_over or not all(_may_be_echo(item) for item in failed):
        return False
    told = explain_job(look.observation.job_lines, look.lost_before)
    return told is not None and told.cause in _SLURM_ENDS


def _may_be_echo(item: End) -> bool:
    """Whether what ends a whole job may have ended this worker: by a signal, or by the loss of a peer that got it."""
    return from_outside(item.code) or explain_roughly(item).victim


def _unsettled(look: Look, failed: list[End]) -> bool:
    """Whether better evidence is due in a moment: a record with the words, or the failure behind the victims'."""
    if any(
        not item.recorded and not from_outside(item.code) and (item.age_s or 0.0) < _RECORD_S
        for item in failed
    ):
        return True
    told = (explain_roughly(item) for item in failed)
    if not all(why.victim or why.missed_master for why in told):
        return False
    if any(not look.is_fresh(seen) and not _left(seen) for seen in look.member_nodes):
        return True  # a silent node is the likelier cause; the rule for nodes decides
    settle_s = look.fresh_s + look.config.monitor.beat_s
    # Eyes that have just opened cannot tell yet whose beat stands still, however long ago the victims died.
    known_s = min(max(item.age_s or 0.0 for item in failed), look.observation.watched_s)
    all_failed = len(failed) + look.observation.unlisted_ends >= look.expected
    return not all_failed and known_s < settle_s


def _left(seen: NodeSeen) -> bool:
    return seen.beat is not None and seen.beat.done_code is not None


def _crashed(look: Look, failed: list[End]) -> Verdict:
    """The earliest failure is the cause (rule 9)."""
    by_node: dict[str, list[End]] = {}
    for item in failed:
        by_node.setdefault(item.node, []).append(item)
    firsts = [_first_on_node(items) for items in by_node.values()]
    culprits = _culprits(look, firsts)
    end, why = culprits[0], explain(culprits[0])
    where = f"in {end.phase} after step {end.step}"
    reason = f"rank {end.rank} on {end.node} {why.what} ({where})"
    if len(culprits) > 1:
        reason += f"; as early: rank {some(tuple(str(item.rank) for item in culprits[1:]))}"
    suspects = why.accused or tuple(item.rank for item in culprits)
    if why.missed_master:
        suspects = _who_keeps_from_the_master(look, failed, suspects)
    nodes = tuple(item.node for item in culprits)
    if why.accused or why.missed_master:
        nodes = tuple(node for rank in suspects if (node := _node_of(look, rank)))
    return Verdict(
        kind=VerdictKind.REFUSED if end.code == ExitCode.REFUSED else VerdictKind.CRASHED,
        reason=reason,
        cause=why.cause,
        suspects=suspects,
        nodes=tuple(dict.fromkeys(nodes)),
        step=end.step,
        signature=why.signature,
        entry=why.entry,
        detected_s=max(0.0, end.age_s or 0.0),
        lines=end.lines[-8:] or ((end.exception_text,) if end.exception_text else ()),
        limits={"record_s": _RECORD_S, "exit_code": end.code, "phase": end.phase, "what": why.what},
    )


def _who_keeps_from_the_master(look: Look, failed: list[End], first: tuple[int, ...]) -> tuple[int, ...]:
    """Rank 0, when nobody reached it or not even its own node did; with two nodes either may be it: both are named."""
    missed = {item.node for item in failed if explain_roughly(item).missed_master}
    others = look.member_set - set(look.members[:1])
    if missed - others or (missed >= others and len(others) > 1):
        return (0,)
    return (*first, 0) if missed >= others else first


def _node_of(look: Look, rank: int) -> str:
    """Ranks are numbered along the members."""
    index = rank // look.config.job.ranks_per_node
    return look.members[index] if index < len(look.members) else ""


def _first_on_node(failed: list[End]) -> End:
    """By the agent's clock; of those that ended together, one that blames nobody."""
    recorded = [item for item in failed if item.recorded]
    if not recorded:
        return max(failed, key=lambda item: (item.age_s or 0.0, -item.rank))
    begun = min(item.ended_s for item in recorded)
    close = [item for item in recorded if item.ended_s <= begun + _TOGETHER_S]
    # A signal from outside that has no record yet is sooner than its victims' words when the beats say so.
    close += [item for item in failed if not item.recorded and from_outside(item.code)]
    return min(close, key=lambda item: (explain_roughly(item).victim, item.ended_s, item.rank))


def _culprits(look: Look, firsts: list[End]) -> list[End]:
    """Across nodes: who blames nobody beats who blames a peer, then who was first; a tie names all."""
    own = [item for item in firsts if not explain_roughly(item).victim] or firsts
    oldest = max(item.age_s or 0.0 for item in own)
    tied = [item for item in own if (item.age_s or 0.0) >= oldest - look.config.monitor.beat_s]
    return sorted(tied, key=lambda item: (-(item.age_s or 0.0), item.rank))


def _completed(found: tuple[End, ...]) -> Verdict:
    step = max(item.step for item in found)
    return Verdict(
        kind=VerdictKind.COMPLETED,
        reason=f"all {len(found)} workers finished, at step {step}",
        step=step,
    )


def _saved(look: Look, found: tuple[End, ...]) -> Verdict:
    step = max(item.step for item in found)
    why = "to pause" if look.pausing else "before the job's time limit"
    unsaved = sum(item.unsaved for item in found)
    reason = f"all {len(found)} workers saved {why} and left, at step {step}"
    if unsaved:
        reason = (
            f"{unsaved} of {len(found)} workers left {why} without saving, at step {step}: the program does not catch "
            "SIGUSR1"
        )
    return Verdict(
        kind=VerdictKind.SAVED,
        reason=reason,
        # A pause is ordered: it is no failure, and has no cause.
        cause=Cause.NONE if look.pausing else Cause.TIME_LIMIT,
        step=step,
        detected_s=max(0.0, min((item.age_s or 0.0 for item in found), default=0.0)),
        limits={"unsaved": unsaved} if unsaved else {},
    )
