"""Slurm's words for the state of a job, and what they mean to us. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from contract.states import JobState

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
class Row:
    """One job as squeue (or scontrol, sacct) shows it. `nodes`: those that it has, or has not given back yet.

    `failed_node`: the one whose failure ended it, where Slurm tells (from 23.02 on).
    """

    job_id: str
    state: JobState
    reason: str
    nodes: tuple[str, ...] = ()
    name: str = ""
    comment: str = ""
    exit: str = ""
    failed_node: str = ""


def state_of(word: str, reason: str = "") -> JobState:
    """Our state for Slurm's word (`CANCELLED by 1000`, `COMPLETING`, …)."""
    first = word.split(maxsplit=1)[0].rstrip("+") if word.split() else ""
    state = STATES.get(first.upper(), JobState.UNKNOWN)
    return JobState.HELD if state is JobState.PENDING and _HELD.search(reason) else state


def reason_of(word: str, reason: str) -> str:
    """Both in one phrase; `None` is Slurm's word for no reason."""
    return word if reason in {"", "None"} else f"{word}: {reason}"
