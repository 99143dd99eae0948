"""What Slurm itself wrote into the job's output about its end. Its exit codes say less than these lines."""

import re
from collections.abc import Iterable

from contract.states import Cause
from supervisor.core.text import one_line
from supervisor.diagnose.live import diagnose_lines
from supervisor.diagnose.verdict import Diagnosis

KEPT = 8
# Lines of slurmstepd and srun; a training program's own output is in the nodes' logs.
_SLURM = re.compile(
    r"^(?:\[[^\]]*\] )?(?:slurmstepd(?:-\S+)?|srun|slurmd|slurm): |^Error running slurm prolog"
)
_CANCELLED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT")
_TASK_ENDED = re.compile(r"^srun: error: \S+: tasks? ")
# Reasons of a pending job that say: it asks for more (or less) than it may ever have. Nobody can release it.
_TOO_MUCH = re.compile(
    r"Partition(Node|Time)Limit|BadConstraints|(AssocMax|QOSMax)\w*PerJob|QOSMin|(QOS|Association)TimeLimit"
    r"|QOSResourceLimit"
)
_NO_REASON = frozenset({Cause.NONE, Cause.UNEXPLAINED, Cause.SIGNAL})  # that something ended, not why
# srun knows a node that it misses by its place in the job only.
_LOST = re.compile(r"Node failure on (\S+)")
_NUMBERED = re.compile(r"missing step on node (\d+)")


def never_clears(reason: str) -> bool:
    """Whether a job with this reason waits for ever as it was asked for."""
    return _TOO_MUCH.search(reason) is not None


def slurms_own(lines: Iterable[str]) -> tuple[str, ...]:
    """The last few lines that Slurm wrote."""
    return tuple(one_line(line) for line in lines if _SLURM.search(line))[-KEPT:]


def explain_job(lines: tuple[str, ...], answered: frozenset[str] = frozenset()) -> Diagnosis | None:
    """What these lines name as the cause, None when they name none.

    `answered`: nodes that the job has lost before, and gone on without: that they were lost ended nothing.
    """
    news = tuple(line for line in lines if not ((lost := _LOST.search(line)) and lost[1] in answered))
    found = diagnose_lines(_without_echoes(news))
    return None if found.cause in _NO_REASON else found


def _without_echoes(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Tasks that end after Slurm has cancelled their step, killed at last because they were slow, explain nothing."""
    first = next((place for place, line in enumerate(lines) if _CANCELLED.search(line)), len(lines))
    return (*lines[:first], *(line for line in lines[first:] if not _TASK_ENDED.search(line)))


def node_by_number(lines: tuple[str, ...], nodes: tuple[str, ...]) -> tuple[str, ...]:
    """The one of the job's nodes that srun gives by its number; () when it gives none."""
    found = next((match for line in lines if (match := _NUMBERED.search(line))), None)
    place = int(found[1]) if found else len(nodes)
    return nodes[place : place + 1]
