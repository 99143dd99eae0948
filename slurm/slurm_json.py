"""Slurm's JSON of jobs, from 22.05 to 25.11: the second reader, for what its text cuts off or says in a new word. Pure.

The text of a job's state is one word, and a flag stands in front of the state itself: a flag that is newer than this
program hides whether the job runs. The JSON of 23.11 and later names both.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contract.states import JobState
from slurm import hostlist
from slurm.words import STATES, Row, reason_of, state_of

# Of a job's several words the one that says most about what may still happen to it.
_FIRST = (JobState.ENDING, JobState.HELD, JobState.PENDING, JobState.RUNNING)


def read_jobs(text: str) -> list[Row] | None:
    """The jobs of `squeue --json`, `scontrol --json show job` or `sacct --json`; None when it is no such answer."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    jobs = value.get("jobs") if isinstance(value, dict) else None
    if not isinstance(jobs, list) or (value.get("errors") and not jobs):
        return None
    return [row for job in jobs if isinstance(job, dict) and (row := _row(job)) is not None]


def _row(job: Mapping[str, Any]) -> Row | None:
    job_id = number(job.get("job_id"))
    if job_id is None:
        return None
    state = job.get("state")
    past: Mapping[str, Any] = state if isinstance(state, dict) else {}  # sacct's shape
    words = _words(job.get("job_state", past.get("current")))
    reason = (
        _text(job.get("state_description")) or _text(job.get("state_reason")) or _text(past.get("reason"))
    )
    return Row(
        job_id=str(job_id),
        state=state_of_words(words, reason),
        reason=reason_of("+".join(words), reason),
        nodes=hostlist.expand(_nodes(job)),
        name=_text(job.get("name")),
        comment=_text(job.get("comment")),
        exit=_exit(job.get("exit_code")),
        failed_node=_text(job.get("failed_node")),
    )


def state_of_words(words: Sequence[str], reason: str = "") -> JobState:
    """Our state for Slurm's words together. A word that we do not know never makes a job a finished one."""
    known = [state_of(word, reason) for word in words if word.split(maxsplit=1)[0].upper() in STATES]
    if not known:
        return JobState.UNKNOWN
    found = next((state for state in _FIRST if state in known), known[0])
    return JobState.UNKNOWN if found.ended and len(known) < len(words) else found


def number(value: object) -> int | None:
    """An integer, or one in an object `{set, infinite, number}`; None where there is none."""
    if isinstance(value, dict):
        return number(value.get("number")) if value.get("set", True) and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _words(value: object) -> tuple[str, ...]:
    items: Iterable[object] = value if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, str) and item.strip())


def _text(value: object) -> str:
    """Sacct has an object of comments; `None` is Slurm's word for no reason."""
    if isinstance(value, dict):
        return _text(value.get("job"))
    return value if isinstance(value, str) and value != "None" else ""


def _nodes(job: Mapping[str, Any]) -> str:
    resources = job.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    if isinstance(nodes, dict):  # from 24.05 on
        nodes = nodes.get("list")
    return _text(job.get("nodes")) or _text(nodes)


def _exit(value: object) -> str:
    """`code:signal`, as the text formats write it."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal")
        sent = number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else None
        return f"{number(value['return_code']) or 0}:{sent or 0}"
    status = number(value)  # as wait(2) gives it
    return "" if status is None else f"{status >> 8}:{status & 0x7F}"
