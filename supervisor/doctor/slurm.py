"""Slurm: clients, controller, and the settings that decide how a run dies and how soon that is known."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contract.config import RunConfig
from supervisor.doctor.finding import Finding, State, ok, skipped

_CLIENTS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo")
_OLDEST = (20, 11)
_ASK_S = 12.0  # a client gives up on a silent controller after about nine


@dataclass(frozen=True, kw_only=True)
class SlurmSeen:
    """`config`: `scontrol show config` by name; None when the controller did not answer, then `problem` says how."""

    missing: tuple[str, ...] = ()
    version: str = ""
    config: Mapping[str, str] | None = None
    problem: str = ""


def measure_slurm(which: Callable[[str], str | None] = shutil.which) -> SlurmSeen:
    """Ask the clients; two calls, each with a limit."""
    missing = tuple(name for name in _CLIENTS if which(name) is None)
    if "scontrol" in missing:
        return SlurmSeen(missing=missing)
    version, _ = _ask("scontrol", "--version")
    text, problem = _ask("scontrol", "show", "config")
    return SlurmSeen(
        missing=missing,
        version=version.strip(),
        config=None if problem else parse_config(text),
        problem=problem,
    )


def parse_config(text: str) -> dict[str, str]:
    """`Name = value` lines; names of plugins' sections are read like the others."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def judge_slurm(seen: SlurmSeen, config: RunConfig | None) -> list[Finding]:
    """What the settings mean for a run; all is said as a warning when no recipe asks for Slurm."""
    needed = config is not None and config.job.executor == "slurm"
    if len(seen.missing) == len(_CLIENTS) and not needed:
        return [skipped("slurm.clients", "no Slurm here; runs with executor local need none")]
    if seen.missing:
        return [
            Finding(
                id="slurm.clients",
                state=State.FAIL,
                what=f"missing: {', '.join(seen.missing)}",
                why="runs are submitted, watched and ended through Slurm's clients",
                fix="install them where the supervisor runs (Debian: apt-get install slurm-client), or put them into PATH",
            )
        ]
    found = [ok("slurm.clients", "all there"), *([_version(seen.version)] if seen.version else [])]
    if seen.config is None:
        return [
            *found,
            Finding(
                id="slurm.controller",
                state=State.FAIL if needed else State.WARN,
                what=f"does not answer: {seen.problem}",
                why="nothing can be submitted; a supervisor that hears nothing does nothing",
                fix="set SLURM_CONF, start munge, check that this host may talk to the controller",
            ),
        ]
    found.append(
        ok("slurm.controller", f"answers ({seen.config.get('ClusterName', 'a cluster without a name')})")
    )
    return [*found, *_settings(seen.config, config)]


def _version(text: str) -> Finding:
    numbers = re.search(r"(\d+)\.(\d+)", text)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= _OLDEST:
        return ok("slurm.version", text)
    return Finding(
        id="slurm.version",
        state=State.WARN,
        what=text,
        why="ciuic is tested with 22.05; nothing is known about versions before 20.11",
        fix="try a small run with a killed node first, or upgrade Slurm",
    )


def _settings(values: Mapping[str, str], config: RunConfig | None) -> list[Finding]:
    queue_s = config.supervisor.queue_s if config else 15.0
    warn_s = config.job.signal_before_limit_s if config else 300
    rules = [
        _requeue(values),
        _kill_wait(_seconds(values, "KillWait")),
        _min_job_age(_seconds(values, "MinJobAge"), queue_s, accounting=_accounting(values)),
        _slurmd_timeout(_seconds(values, "SlurmdTimeout")),
        _message_timeout(_seconds(values, "MessageTimeout")),
        _time_limit_signal(warn_s),
        _proctrack(values.get("ProctrackType", "")),
        _unkillable(_seconds(values, "UnkillableStepTimeout")),
        ok("slurm.accounting", values["AccountingStorageType"])
        if _accounting(values)
        else Finding(
            id="slurm.accounting",
            state=State.WARN,
            what="no accounting (AccountingStorageType)",
            why="how a job ended is known only until MinJobAge is over; after that the agents' own records must do",
            fix="run slurmdbd, or keep MinJobAge at 300 or more",
        ),
    ]
    return [rule for rule in rules if rule is not None]


def _accounting(values: Mapping[str, str]) -> bool:
    kind = values.get("AccountingStorageType", "")
    return bool(kind) and not kind.endswith(("/none", "(null)")) and kind != "(null)"


def _seconds(values: Mapping[str, str], name: str) -> int | None:
    """The number in `30 sec`; None when it is not set or no number."""
    found = re.match(r"(\d+)", values.get(name, ""))
    return int(found[1]) if found else None


def _requeue(values: Mapping[str, str]) -> Finding:
    forced = "ForceRequeueOnFail" in values.get("PrologFlags", "")
    if not forced:
        said = values.get("JobRequeue", "?")
        return ok("slurm.requeue", f"JobRequeue={said}; ciuic submits with --no-requeue, which wins")
    return Finding(
        id="slurm.requeue",
        state=State.WARN,
        what="PrologFlags has ForceRequeueOnFail",
        why="Slurm then restarts a job by itself although it was submitted with --no-requeue, beside the supervisor's restart",
        fix="ask the administrator to take ForceRequeueOnFail out of PrologFlags",
    )


def _kill_wait(seconds: int | None) -> Finding | None:
    if seconds is None or seconds >= 30:
        return None if seconds is None else ok("slurm.kill-wait", f"KillWait={seconds} s")
    return Finding(
        id="slurm.kill-wait",
        state=State.WARN,
        what=f"KillWait={seconds} s",
        why="so long after SIGTERM everything is killed; evidence of a hang and last lines of logs need longer",
        fix="KillWait=30 (Slurm's default) or more in slurm.conf",
    )


def _min_job_age(seconds: int | None, queue_s: float, *, accounting: bool) -> Finding | None:
    if seconds is None:
        return None
    least = max(60.0, 4 * queue_s)
    if seconds == 0 or seconds >= least:
        return ok("slurm.min-job-age", f"MinJobAge={seconds} s")
    return Finding(
        id="slurm.min-job-age",
        state=State.WARN,
        what=f"MinJobAge={seconds} s, questions to Slurm come every {queue_s:g} s",
        why="a job that ended is forgotten before its end is certain to be read"
        + ("; accounting is asked then" if accounting else ", and there is no accounting to ask"),
        fix=f"MinJobAge=300 (Slurm's default) in slurm.conf, at least {least:g}",
    )


def _slurmd_timeout(seconds: int | None) -> Finding | None:
    if seconds is None or 60 <= seconds <= 600:
        return None if seconds is None else ok("slurm.slurmd-timeout", f"SlurmdTimeout={seconds} s")
    why = (
        "a dead node is never taken out of its job, so a job whose nodes died ends only at its time limit"
        if seconds == 0
        else "a node daemon that stalls for a moment costs its node"
        if seconds < 60
        else "so long a dead node counts as allocated; a replacement from the same partition has to wait for it"
    )
    return Finding(
        id="slurm.slurmd-timeout",
        state=State.WARN,
        what=f"SlurmdTimeout={seconds} s",
        why=why,
        fix="SlurmdTimeout=300 (Slurm's default) in slurm.conf",
    )


def _message_timeout(seconds: int | None) -> Finding | None:
    if seconds is None or seconds <= 60:
        return None if seconds is None else ok("slurm.message-timeout", f"MessageTimeout={seconds} s")
    return Finding(
        id="slurm.message-timeout",
        state=State.WARN,
        what=f"MessageTimeout={seconds} s",
        why="a client waits so long for a silent controller; the supervisor gives it up sooner and knows less",
        fix="MessageTimeout=60 or less in slurm.conf",
    )


def _time_limit_signal(warn_s: int) -> Finding:
    if warn_s >= 120:
        return ok(
            "slurm.time-limit-signal", f"workers are told to save {warn_s} s before the limit (--signal)"
        )
    return Finding(
        id="slurm.time-limit-signal",
        state=State.WARN,
        what=f"signal_before_limit_s={warn_s}",
        why="Slurm sends the signal up to 60 s off its time; a save that takes longer than the rest is lost",
        fix="[job] signal_before_limit_s: the time of a save plus 120",
    )


def _proctrack(kind: str) -> Finding | None:
    if not kind or kind.endswith("/cgroup"):
        return ok("slurm.proctrack", kind) if kind else None
    return Finding(
        id="slurm.proctrack",
        state=State.WARN,
        what=f"ProctrackType={kind}",
        why="a worker that leaves its process group outlives its job and holds GPU memory",
        fix="ProctrackType=proctrack/cgroup in slurm.conf",
    )


def _unkillable(seconds: int | None) -> Finding | None:
    if seconds is None or seconds >= 60:
        return None if seconds is None else ok("slurm.unkillable", f"UnkillableStepTimeout={seconds} s")
    return Finding(
        id="slurm.unkillable",
        state=State.WARN,
        what=f"UnkillableStepTimeout={seconds} s",
        why="a node whose processes die slowly (stuck in a file system or driver) is drained after that",
        fix="UnkillableStepTimeout=60 (Slurm's default) or more in slurm.conf",
    )


def _ask(*command: str) -> tuple[str, str]:
    """(what it printed, "") or ("", the problem)."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} did not answer within {_ASK_S:g} s"
    except OSError as error:
        return "", str(error)
    if done.returncode:
        return "", (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return done.stdout, ""
