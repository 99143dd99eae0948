"""Slurm's own words: the text of squeue, scontrol and sacct, and what it means. Text, because its JSON changes yearly."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contract.states import JobState
from slurm import hostlist

TIMEOUT_S = 30.0  # a silent controller makes the clients wait about 10 s by themselves

# Base states and flags up to 25.11. A word that is not here is UNKNOWN, never "finished".
STATES: Mapping[str, JobState] = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "POWER_UP_NODE": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "EXPEDITING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "COMPLETING": JobState.ENDING,
    "STAGE_OUT": JobState.ENDING,
    "UPDATE_DB": JobState.ENDING,
    "SUSPENDED": JobState.HELD,
    "STOPPED": JobState.HELD,
    "REQUEUE_HOLD": JobState.HELD,
    "SPECIAL_EXIT": JobState.HELD,
    "RESV_DEL_HOLD": JobState.HELD,
    "COMPLETED": JobState.ENDED_OK,
    "FAILED": JobState.ENDED_FAILED,
    "OUT_OF_MEMORY": JobState.ENDED_FAILED,
    "LAUNCH_FAILED": JobState.ENDED_FAILED,
    "TIMEOUT": JobState.ENDED_LIMIT,
    "DEADLINE": JobState.ENDED_LIMIT,
    "PREEMPTED": JobState.ENDED_PREEMPTED,
    "NODE_FAIL": JobState.ENDED_NODE,
    "BOOT_FAIL": JobState.ENDED_NODE,
    "RECONFIG_FAIL": JobState.ENDED_NODE,
    "CANCELLED": JobState.ENDED_CANCELLED,
    "REVOKED": JobState.UNKNOWN,  # another cluster of a federation has it
}
# Reasons of a pending job that no waiting clears.
_HELD = re.compile(
    r"JobHeld|JobHoldMaxRequeue|DependencyNeverSatisfied|BadConstraints|Partition(Node|Time)Limit|AccountNotAllowed"
    r"|Partition(Down|Inactive)|InvalidAccount|InvalidQOS|QOSNotAllowed|ReservationDeleted|launch.failed|launch.failure"
    r"|Prolog|requeued.(held|in)|(AssocMax|QOSMax)\w*PerJob|QOSMin\w*|(QOS|Association)TimeLimit|QOSResourceLimit",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client said."""

    code: int
    out: str
    err: str


Ask = Callable[[Sequence[str]], Answer | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job as squeue (or scontrol, sacct) shows it. `nodes`: those that it has, or has not given back yet."""

    job_id: str
    state: JobState
    reason: str
    nodes: tuple[str, ...] = ()
    name: str = ""
    comment: str = ""
    exit: str = ""


def state_of(word: str, reason: str = "") -> JobState:
    """Our state for Slurm's word (`CANCELLED by 1000`, `COMPLETING`, …)."""
    first = word.split(maxsplit=1)[0].rstrip("+") if word.split() else ""
    state = STATES.get(first.upper(), JobState.UNKNOWN)
    return JobState.HELD if state is JobState.PENDING and _HELD.search(reason) else state


def ask(command: Sequence[str]) -> Answer | None:
    """Run a client of Slurm; None when it did not answer in time or is not there."""
    # SQUEUE_FORMAT and its like in a user's profile would change what we parse.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_"))
    }
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, env=clean, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Answer(
        code=done.returncode,
        out=done.stdout.decode(errors="replace"),
        err=done.stderr.decode(errors="replace"),
    )


def list_jobs(ask: Ask = ask) -> list[Row] | None:
    """All jobs of this user that the controller remembers; None when it gave no reliable answer."""
    answer = ask(["squeue", "--me", "-h", "-t", "all", "-r", "-o", "%i|%T|%r|%N|%j|%k"])
    if answer is None or answer.code != 0:
        return None
    return parse_squeue(answer.out)


def parse_squeue(text: str) -> list[Row]:
    """Rows of `%i|%T|%r|%N|%j|%k`; lines that are not such rows (banners) are left out. People's text comes last."""
    rows = []
    for line in text.splitlines():
        parts = line.strip().split("|", 5)
        if len(parts) == 6 and parts[0]:
            job_id, word, reason, nodes, name, comment = parts
            rows.append(
                Row(
                    job_id=job_id,
                    state=state_of(word, reason),
                    reason=_reason(word, reason),
                    nodes=hostlist.expand(nodes),
                    name=name,
                    comment=comment,
                )
            )
    return rows


def show_job(job_id: str, ask: Ask = ask) -> Row | None:
    """One job by its id, ended ones too as long as anybody remembers them; None without a reliable answer."""
    answer = ask(["scontrol", "-o", "show", "job", job_id])
    if answer is None:
        return None
    if answer.code == 0:
        return parse_scontrol(answer.out)
    if "invalid job id" not in answer.err.lower():
        return None
    past = ask(["sacct", "-X", "-n", "--parsable2", "-o", "JobID,State,ExitCode", "-j", job_id])
    row = parse_sacct(past.out) if past is not None and past.code == 0 else None
    return row or Row(job_id=job_id, state=JobState.GONE, reason="Slurm has forgotten the job")


def parse_scontrol(text: str) -> Row | None:
    """The job in one line of `scontrol -o show job`."""
    found = dict(re.findall(r"(?:^|\s)(JobId|JobState|Reason|ExitCode|JobName|NodeList)=(\S*)", text))
    if "JobId" not in found or "JobState" not in found:
        return None
    word, reason = found["JobState"], found.get("Reason", "")
    return Row(
        job_id=found["JobId"],
        state=state_of(word, reason),
        reason=_reason(word, reason),
        nodes=hostlist.expand(found.get("NodeList", "")),
        name=found.get("JobName", ""),
        exit=found.get("ExitCode", ""),
    )


def parse_sacct(text: str) -> Row | None:
    """The job in the last line of `sacct -X -n --parsable2 -o JobID,State,ExitCode`."""
    lines = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    if not lines:
        return None
    job_id, word, code = lines[-1]
    return Row(job_id=job_id, state=state_of(word), reason=word, exit=code)


def _reason(word: str, reason: str) -> str:
    return word if reason in {"", "None"} else f"{word}: {reason}"
