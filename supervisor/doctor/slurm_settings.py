"""The settings of Slurm that decide how a run dies and how soon that is known: a table, a row each. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from contract.config import RunConfig
from supervisor.doctor.finding import Finding, State, ok

_DEFAULT_QUEUE_S = 15.0
_DEFAULT_WARNING_S = 300


@dataclass(frozen=True, kw_only=True)
class _Row:
    """`what` the setting is, "" when it is not known; `why` that hurts, "" when it does not; what to do then."""

    id: str
    what: str
    why: str
    fix: str


def judge_settings(values: Mapping[str, str], config: RunConfig | None) -> list[Finding]:
    """What `scontrol show config` says (by name), for this recipe."""
    return [
        Finding(id=row.id, state=State.WARN, what=row.what, why=row.why, fix=row.fix)
        if row.why
        else ok(row.id, row.what)
        for row in _rows(_Values(values), config)
        if row.what
    ]


class _Values:
    """The settings, as numbers and as words."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        value = self._values.get(name, "")
        return "" if value == "(null)" else value

    def seconds(self, name: str) -> int | None:
        """The number in `30 sec`; None when it is not set or no number."""
        found = re.match(r"(\d+)", self.text(name))
        return int(found[1]) if found else None

    def said(self, name: str) -> str:
        """`KillWait=30 s`, "" when it is not set."""
        seconds = self.seconds(name)
        return "" if seconds is None else f"{name}={seconds} s"

    def below(self, name: str, least: float) -> bool:
        seconds = self.seconds(name)
        return seconds is not None and seconds < least

    def above(self, name: str, most: float) -> bool:
        seconds = self.seconds(name)
        return seconds is not None and seconds > most

    @property
    def accounting(self) -> str:
        """The plug-in, "" when there is none."""
        kind = self.text("AccountingStorageType")
        return "" if kind.endswith("/none") else kind


def _rows(slurm: _Values, config: RunConfig | None) -> Iterator[_Row]:
    forced = "ForceRequeueOnFail" in slurm.text("PrologFlags")
    yield _Row(
        id="slurm.requeue",
        what="PrologFlags has ForceRequeueOnFail"
        if forced
        else f"JobRequeue={slurm.text('JobRequeue') or '?'}; ciuic submits with --no-requeue, which wins",
        why="Slurm then restarts a job by itself although it was submitted with --no-requeue, beside the supervisor's "
        "restart"
        if forced
        else "",
        fix="ask the administrator to take ForceRequeueOnFail out of PrologFlags",
    )
    yield _Row(
        id="slurm.kill-wait",
        what=slurm.said("KillWait"),
        why="so long after SIGTERM everything is killed; evidence of a hang and last lines of logs need longer"
        if slurm.below("KillWait", 30)
        else "",
        fix="KillWait=30 (Slurm's default) or more in slurm.conf",
    )
    yield _min_job_age(slurm, config)
    yield _Row(
        id="slurm.slurmd-timeout",
        what=slurm.said("SlurmdTimeout"),
        why="a dead node is never taken out of its job, so a job whose nodes died ends only at its time limit"
        if slurm.seconds("SlurmdTimeout") == 0
        else "a node daemon that stalls for a moment costs its node"
        if slurm.below("SlurmdTimeout", 60)
        else "so long a dead node counts as allocated; a replacement from the same partition has to wait for it"
        if slurm.above("SlurmdTimeout", 600)
        else "",
        fix="SlurmdTimeout=300 (Slurm's default) in slurm.conf",
    )
    yield _Row(
        id="slurm.message-timeout",
        what=slurm.said("MessageTimeout"),
        why="a client waits so long for a silent controller; the supervisor gives it up sooner and knows less"
        if slurm.above("MessageTimeout", 60)
        else "",
        fix="MessageTimeout=60 or less in slurm.conf",
    )
    warning_s = config.job.signal_before_limit_s if config else _DEFAULT_WARNING_S
    yield _Row(
        id="slurm.time-limit-signal",
        what=f"workers are told to save {warning_s} s before the limit (signal_before_limit_s)",
        why="Slurm sends the signal up to 60 s off its time; a save that takes longer than the rest is lost"
        if warning_s < 120
        else "",
        fix="[job] signal_before_limit_s: the time of a save plus 120",
    )
    tracking = slurm.text("ProctrackType")
    yield _Row(
        id="slurm.proctrack",
        what=f"ProctrackType={tracking}" if tracking else "",
        why=""
        if tracking.endswith("/cgroup")
        else "a worker that leaves its process group outlives its job and holds GPU memory",
        fix="ProctrackType=proctrack/cgroup in slurm.conf",
    )
    yield _Row(
        id="slurm.unkillable",
        what=slurm.said("UnkillableStepTimeout"),
        why="a node whose processes die slowly (stuck in a file system or driver) is drained after that"
        if slurm.below("UnkillableStepTimeout", 60)
        else "",
        fix="UnkillableStepTimeout=60 (Slurm's default) or more in slurm.conf",
    )
    yield _Row(
        id="slurm.accounting",
        what=slurm.accounting or "no accounting (AccountingStorageType)",
        why=""
        if slurm.accounting
        else "how a job ended is known only until MinJobAge is over; after that the agents' own records must do",
        fix="run slurmdbd, or keep MinJobAge at 300 or more",
    )


def _min_job_age(slurm: _Values, config: RunConfig | None) -> _Row:
    queue_s = config.supervisor.queue_s if config else _DEFAULT_QUEUE_S
    least = max(60.0, 4 * queue_s)
    soon = slurm.seconds("MinJobAge") != 0 and slurm.below("MinJobAge", least)
    said = slurm.said("MinJobAge")
    return _Row(
        id="slurm.min-job-age",
        what=f"{said}, questions to Slurm come every {queue_s:g} s" if soon else said,
        why="a job that ended is forgotten before its end is certain to be read"
        + ("; accounting is asked then" if slurm.accounting else ", and there is no accounting to ask")
        if soon
        else "",
        fix=f"MinJobAge=300 (Slurm's default) in slurm.conf, at least {least:g}",
    )
