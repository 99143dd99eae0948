"""Slurm's own words: the text of squeue, scontrol and sacct, and what it means. Text first: its JSON changes yearly."""

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contract.states import JobState
from slurm import hostlist
from slurm.slurm_json import read_jobs
from slurm.words import Row, reason_of, state_of

TIMEOUT_S = 30.0  # a silent controller makes the clients wait about 10 s by themselves
_NOT_THERE = 127
_NO_ANSWER = "squeue gave no answer"
_NO_CONFIG = re.compile("configuration source|SLURM_CONF|slurm.conf")
_SAID = 300  # of its last line, so many characters
_SACCT = "JobID,State,ExitCode,NodeList,JobName"
_ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,TO"  # sacct's letters for every state in which a job is over
_ACCOUNTING_OFF = re.compile(r"accounting storage is disabled|sacct: not installed", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client said."""

    code: int
    out: str
    err: str


Ask = Callable[[Sequence[str]], Answer | None]


def ask(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> Answer | None:
    """Run a client of Slurm; None when it did not answer in time. It is ended then."""
    # SQUEUE_FORMAT and its like in a user's profile would change what we parse.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_"))
    }
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, env=clean, check=False)
    except FileNotFoundError:
        return Answer(code=_NOT_THERE, out="", err=f"{command[0]}: not installed")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Answer(
        code=done.returncode,
        out=done.stdout.decode(errors="replace"),
        err=done.stderr.decode(errors="replace"),
    )


def list_jobs(ask: Ask = ask) -> list[Row] | None:
    """All jobs of this user that the controller remembers; None when it gave no reliable answer."""
    rows = jobs_or_reason(ask)
    return None if isinstance(rows, str) else rows


def jobs_or_reason(ask: Ask = ask) -> list[Row] | str:
    """The same; else why there is no reliable answer, as squeue says it."""
    answer = ask(["squeue", "--me", "-h", "-t", "all", "-r", "-o", "%i|%T|%r|%N|%j|%k"])
    if answer is None:
        return _NO_ANSWER
    if answer.code != 0:
        lines = [line.strip().removeprefix("squeue: ") for line in answer.err.splitlines() if line.strip()]
        reason = f"{_NO_ANSWER}: {lines[-1][:_SAID]}" if lines else _NO_ANSWER
        unset = _NO_CONFIG.search(answer.err) and "SLURM_CONF" not in os.environ
        return f"{reason}; SLURM_CONF is not set for the process that asks" if unset else reason
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
                    reason=reason_of(word, reason),
                    nodes=hostlist.expand(nodes),
                    name=name,
                    comment=comment,
                )
            )
    return rows


def ended_jobs(name: str, hours: int, ask: Ask = ask) -> list[tuple[Row, str]]:
    """Jobs of this name that ended in so many hours, each with the command line that handed it in; [] without accounting.

    Only accounting remembers a job that the controller has forgotten.
    """
    # By state and end: without states, jobs that never became eligible (held, then cancelled) are left out.
    period = ["-s", _ENDED, "-S", f"now-{hours}hours", "-E", "now+1hours"]
    fields = ["-o", "JobID,State,JobName,Comment,SubmitLine"]
    answer = ask(["sacct", "-X", "-n", "--parsable2", f"--name={name}", *period, *fields])
    if answer is None or answer.code != 0:
        return []
    found = []
    for line in answer.out.splitlines():
        parts = line.split("|", 4)
        if len(parts) == 5 and state_of(parts[1]).ended:
            job_id, word, job_name, comment, command = parts
            row = Row(job_id=job_id, state=state_of(word), reason=word, name=job_name, comment=comment)
            found.append((row, command))
    return found


def show_job(job_id: str, ask: Ask = ask) -> Row | None:
    """One job by its id, ended ones too as long as anybody remembers them; None when the controller does not answer.

    A job that the controller has forgotten is over; how it ended is accounting's to say. Where that is on and silent,
    or behind, the state is UNKNOWN: a person may have cancelled the job.
    """
    answer = ask(["scontrol", "-o", "show", "job", job_id])
    if answer is None:
        return None
    if answer.code == 0:
        return _in_full(parse_scontrol(answer.out), job_id, ["squeue", "--me", "-t", "all", "--json"], ask)
    if "invalid job id" not in answer.err.lower():
        return None
    return _remembered(job_id, ask)


def in_full(row: Row, ask: Ask = ask) -> Row:
    """The row again, from Slurm's JSON where its text says a word that we do not know."""
    return _in_full(row, row.job_id, ["squeue", "--me", "-t", "all", "--json"], ask) or row


def _in_full(row: Row | None, job_id: str, command: Sequence[str], ask: Ask) -> Row | None:
    if row is not None and row.state is not JobState.UNKNOWN:
        return row
    answer = ask(command)
    found = read_jobs(answer.out) if answer is not None and answer.code == 0 else None
    # The squeue of 22.05 shows all jobs whatever it is asked for.
    return next((item for item in found or [] if item.job_id == job_id), row)


def _remembered(job_id: str, ask: Ask) -> Row:
    command = ["sacct", "-X", "-n", "--parsable2", "-o", _SACCT, "-j", job_id]
    answer = ask(command)
    if answer is None or (answer.code != 0 and not _ACCOUNTING_OFF.search(answer.err)):
        said = (answer.err.strip().splitlines() or [""])[-1][:200] if answer else "no answer"
        return _unclear(
            job_id, f"the controller has forgotten the job, and accounting does not answer: {said}"
        )
    if answer.code != 0:
        return Row(job_id=job_id, state=JobState.GONE, reason="Slurm has forgotten the job")
    row = parse_sacct(answer.out)
    if row is None:
        reason = "neither Slurm's controller nor its accounting knows the job"
        return Row(job_id=job_id, state=JobState.GONE, reason=reason)
    row = _in_full(row, job_id, ["sacct", "-X", "--json", "-j", job_id], ask) or row
    if not row.state.ended:
        return _unclear(
            job_id, f"the controller has forgotten the job, and accounting says {row.reason} still"
        )
    return row


def _unclear(job_id: str, reason: str) -> Row:
    return Row(job_id=job_id, state=JobState.UNKNOWN, reason=reason)


def parse_scontrol(text: str) -> Row | None:
    """The job in one line of `scontrol -o show job`."""
    found: dict[str, str] = {}
    for name, value in re.findall(
        r"(?:^|\s)(JobId|JobState|Reason|ExitCode|JobName|NodeList|FailedNode)=(\S*)", text
    ):
        found.setdefault(name, value)  # people's text comes later
    if "JobId" not in found or "JobState" not in found:
        return None
    word, reason = found["JobState"], found.get("Reason", "")
    return Row(
        job_id=found["JobId"],
        state=state_of(word, reason),
        reason=reason_of(word, reason),
        nodes=hostlist.expand(found.get("NodeList", "")),
        name=found.get("JobName", ""),
        exit=found.get("ExitCode", ""),
        failed_node=found.get("FailedNode", "").replace("(null)", ""),
    )


def parse_sacct(text: str) -> Row | None:
    """The job in the last line of `sacct -X -n --parsable2` with the fields that are asked for."""
    lines = [parts for line in text.splitlines() if len(parts := line.split("|", 4)) == 5]
    if not lines:
        return None
    job_id, word, code, nodes, name = lines[-1]
    return Row(
        job_id=job_id, state=state_of(word), reason=word, nodes=hostlist.expand(nodes), name=name, exit=code
    )
