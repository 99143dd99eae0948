"""Verdicts from nodes: an agent that died, fell silent, gave up or never came. And silence that means nothing."""

from contract.states import AgentPhase, Cause, ControlPhase, ExitCode, JobState, VerdictKind
from supervisor.core.ends import TERMINATED, WELL
from supervisor.core.look import Look, some
from supervisor.core.observation import NodeSeen
from supervisor.core.text import one_line
from supervisor.core.verdict import Verdict

_NO_FAULT = frozenset({*WELL, TERMINATED, None})


def judge_lost(look: Look) -> Verdict | None:
    """NODE_LOST: a member's agent is dead, or silent while others move on the same file system (rule 3)."""
    lost = [seen for seen in look.member_nodes if _is_lost(look, seen)]
    if not lost:
        return None
    names = tuple(seen.node for seen in lost)
    ranks = tuple(worker.rank for seen in lost if seen.beat for worker in seen.beat.workers)
    silent_s = max(seen.silent_s for seen in lost)
    limit = look.silent_limit_s
    if all(seen.alive is False for seen in lost):
        how = "its agent is dead" if len(lost) == 1 else "their agents are dead"
    else:
        how = f"no beat for {silent_s:.0f} s (limit {limit:.0f} s) while other nodes' beats move"
    return Verdict(
        kind=VerdictKind.NODE_LOST,
        reason=f"lost {some(names)}: {how}",
        cause=Cause.NODE_FAILURE,
        suspects=ranks,
        nodes=names,
        step=look.observation.step,
        detected_s=silent_s,
        limits={
            "node_silent_s": limit,
            "silent_s": silent_s,
            "dead": all(seen.alive is False for seen in lost),
        },
    )


def _is_lost(look: Look, seen: NodeSeen) -> bool:
    beat = seen.beat
    if beat is None or beat.attempt != look.observation.attempt or beat.done_code is not None:
        return False  # never seen to live, or left as it should
    if seen.alive is False:
        return beat.phase is not AgentPhase.LEAVING or not look.ending
    limit = look.silent_limit_s
    others = len(look.beating) > look.is_fresh(seen)
    # The flock is held: the agent lives, and its file system is what is late.
    watched = look.observation.watched_s > limit and not look.observation.problems
    return seen.alive is None and seen.silent_s > limit and watched and others


def judge_taken(look: Look) -> Verdict | None:
    """NODE_LOST: Slurm has taken a member out of the running job, whatever still runs there.

    Its node daemon is dead. Should it come back, it ends what it finds of the job; until then that is a zombie.
    """
    job = look.observation.job
    if job.state is not JobState.RUNNING or not job.nodes:
        return None
    names = tuple(node for node in look.members if node not in job.nodes)
    if not names:
        return None
    taken = [seen for seen in look.member_nodes if seen.node in names]
    silent_s = max((seen.silent_s for seen in taken), default=0.0)
    return Verdict(
        kind=VerdictKind.NODE_LOST,
        reason=f"lost {some(names)}: Slurm has taken it out of job {job.job_id}",
        cause=Cause.NODE_FAILURE,
        suspects=tuple(worker.rank for seen in taken if seen.beat for worker in seen.beat.workers),
        nodes=names,
        step=look.observation.step,
        detected_s=max(job.age_s, silent_s),  # it may have fallen silent long before Slurm said so
        limits={"job_nodes": len(job.nodes), "job_age_s": job.age_s, "taken_silent_s": silent_s},
    )


def judge_silence(look: Look) -> Verdict | None:
    """UNKNOWN: nothing tells the present. Neither the queue nor any beat is evidence of death."""
    observation = look.observation
    agents = [seen for seen in observation.nodes if seen.beat and seen.beat.attempt == observation.attempt]
    if look.beating and any(seen.moved or seen.alive for seen in agents):
        return None  # somebody moves: a single late beat is no reason to doubt
    limit = look.silent_limit_s
    if agents:
        silent_s = min(seen.silent_s for seen in agents)
        if silent_s <= limit:
            known = any(seen.moved or seen.alive for seen in agents)
            return None if known else _unknown("no node's beat has been seen to move yet", silent_s)
        why = f" ({observation.job.reason})" if observation.job.state is JobState.UNKNOWN else ""
        what = f"no node's beat has moved for {silent_s:.0f} s; the queue says {observation.job.state}{why}"
        return _unknown(what, silent_s)
    if observation.job.state is JobState.UNKNOWN:
        return _unknown(
            f"the queue does not answer and no agent beats ({observation.job.reason})", observation.job.age_s
        )
    return None


def judge_problems(look: Look) -> Verdict | None:
    """UNKNOWN: what could not be read could hold the evidence. Comes before every rule that concludes from absence."""
    problems = look.observation.problems
    if not problems or look.beating:
        return None
    return _unknown(f"cannot be read: {one_line('; '.join(problems[:3]))}", 0.0)


def judge_gave_up(look: Look) -> Verdict | None:
    """CRASHED before any worker ran: agents left with a failure, and too few are there to start."""
    observation = look.observation
    if look.ending or observation.workers:
        return None
    ours = [seen for seen in observation.nodes if seen.beat and seen.beat.attempt == observation.attempt]
    left = [seen for seen in ours if seen.beat and seen.beat.done_code not in _NO_FAULT]
    needed = [seen for seen in left if seen.node in look.member_set] if look.members else left
    if not needed or (not look.members and len(ours) - len(left) >= look.config.job.nodes):
        return None
    code = needed[0].beat.done_code if needed[0].beat else None
    notes = needed[0].beat.notes if needed[0].beat else ()
    said = one_line("; ".join(notes)) or f"exit code {code}"
    names = tuple(seen.node for seen in needed)
    return Verdict(
        kind=VerdictKind.REFUSED if code == ExitCode.REFUSED else VerdictKind.CRASHED,
        reason=f"the agent on {some(names)} gave up before the start: {said}",
        cause=Cause.CONFIG if code == ExitCode.CONFIG else Cause.LAUNCH,
        nodes=names,
        lines=tuple(notes),
        limits={"exit_code": code, "what": said},
    )


def judge_saved_early(look: Look) -> Verdict | None:
    """SAVED before any worker ran: the time limit (or a pause) came first, and there was nothing to save."""
    observation = look.observation
    ours = [seen.beat for seen in observation.nodes if seen.beat and seen.beat.attempt == observation.attempt]
    if observation.workers or not ours or any(beat.done_code != ExitCode.SAVED for beat in ours):
        return None
    return Verdict(
        kind=VerdictKind.SAVED,
        reason="the agents left before training had begun"
        + (" (pause)" if look.pausing else ", at the time limit"),
        cause=Cause.NONE if look.pausing else Cause.TIME_LIMIT,
    )


def judge_start(look: Look) -> Verdict | None:
    """HUNG at the launch: agents, readiness, the go file or workers do not appear within the start limit."""
    observation, limit = look.observation, look.config.monitor.start_s
    if look.ending or look.pausing or observation.problems or look.present_s <= limit:
        return None
    control = observation.control
    preparing = control is not None and control.generation > 1 and control.phase is ControlPhase.PREPARE
    if preparing:
        return _late(
            look, tuple(seen.node for seen in _unready(look)), Cause.LAUNCH, "did not get ready", limit
        )
    if not look.members:
        there = len(look.beating) + look.observation.unlisted_beating
        if there < look.config.job.nodes:
            what = f"{there} of {look.config.job.nodes} agents appeared"
            return _hung(Cause.LAUNCH, what, look, limit)
        return _hung(Cause.RENDEZVOUS, f"{there} agents beat and none started the generation", look, limit)
    if look.present_s <= 2 * limit:  # the agents had their share; the workers have theirs
        return None
    with_workers = {seen.node for seen, _ in observation.workers}
    missing = tuple(node for node in look.members if node not in with_workers)
    return _late(look, missing, Cause.LAUNCH, "started no worker", 2 * limit)


def _unready(look: Look) -> list[NodeSeen]:
    """Members that are there and not ready. One without any beat is a node without a name to blame: also here."""
    generation = look.observation.generation
    known = {seen.node: seen for seen in look.observation.nodes}
    nodes = [known.get(name, NodeSeen(node=name, beat=None, silent_s=0.0)) for name in look.members]
    return [seen for seen in nodes if seen.beat is None or seen.beat.ready_for != generation]


def _late(look: Look, nodes: tuple[str, ...], cause: Cause, what: str, limit: float) -> Verdict | None:
    return _hung(cause, f"{some(nodes)} {what}", look, limit, nodes) if nodes else None


def _hung(cause: Cause, what: str, look: Look, limit: float, nodes: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        kind=VerdictKind.HUNG,
        reason=f"{what} within {limit:.0f} s",
        cause=cause,
        nodes=nodes,
        step=look.observation.step,
        detected_s=look.present_s,
        limits={"limit_s": limit, "present_s": look.present_s, "what": what},
    )


def _unknown(reason: str, for_s: float) -> Verdict:
    """`detected_s` is how long this has lasted, as far as anybody can tell."""
    return Verdict(kind=VerdictKind.UNKNOWN, reason=reason, detected_s=for_s)
