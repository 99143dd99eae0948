"""What Slurm itself wrote into the job's output about its end. Its exit codes say less than these lines."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from contract.states import Cause
from supervisor.core.text import one_line

KEPT = 8
# Lines of slurmstepd and srun; a training program's own output is in the nodes' logs.
_SLURM = re.compile(
    r"^(?:\[[^\]]*\] )?(?:slurmstepd(?:-\S+)?|srun|slurmd|slurm): |^Error running slurm prolog"
)
# First match wins: the first is the rarest and the most precise.
_RULES: tuple[tuple[Cause, re.Pattern[str], str], ...] = tuple(
    (cause, re.compile(pattern), what)
    for cause, pattern, what in (
        (Cause.LAUNCH, r"[Pp]rolog (?:failure|failed)(?: on node (?P<node>\S+))?", "a node's prolog failed"),
        (
            Cause.LAUNCH,
            r"Task launch for \S+ failed on node (?P<node>[^\s:]+)",
            "a node could not start its task",
        ),
        (Cause.NODE_FAILURE, r"Node failure on (?P<node>[^\s,]+)", "Slurm lost a node"),
        (Cause.NODE_FAILURE, r"DUE TO NODE FAILURE", "Slurm lost a node"),
        (
            Cause.NODE_FAILURE,
            r"missing step on node|missing from node",
            "a node came back from its death without its part of the job",
        ),
        (Cause.TIME_LIMIT, r"DUE TO TIME LIMIT", "the job reached its time limit"),
        (Cause.PREEMPTED, r"DUE TO (?:PREEMPTION|JOB REQUEUE)", "the job was preempted"),
        (
            Cause.HOST_OOM,
            r"oom.kill|Out Of Memory|[Ee]xceeded (?:job|step) memory limit",
            "out of host memory",
        ),
        (Cause.SIGNAL, r"\*\*\* STEP (?P<step>\S+) ON \S+ CANCELLED AT", "a step of the job was cancelled"),
        (
            Cause.LAUNCH,
            r"Unable to create step|couldn't chdir|Slurmd could not connect IO",
            "the step did not start",
        ),
    )
)


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """`line` is the one that says it; `nodes` those that it names."""

    cause: Cause
    what: str
    line: str
    nodes: tuple[str, ...] = ()


def slurms_own(lines: Iterable[str]) -> tuple[str, ...]:
    """The last few lines that Slurm wrote."""
    return tuple(one_line(line) for line in lines if _SLURM.search(line))[-KEPT:]


def explain_job(lines: tuple[str, ...]) -> JobEnd | None:
    """The cause that these lines name, None when they name none."""
    for cause, pattern, what in _RULES:
        for line in lines:
            found = pattern.search(line)
            if found is not None:
                named = found.groupdict().get("node") or ""
                return JobEnd(cause=cause, what=what, line=line, nodes=(named,) if named else ())
    return None
