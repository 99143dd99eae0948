"""What one worker's end means: its cause, a signature for "the same again", and a sentence."""

import re
import signal
from dataclasses import dataclass, replace
from functools import lru_cache

from contract.exits import KERNEL_OOM
from contract.states import Cause, ExitCode
from supervisor.core.text import one_line
from supervisor.diagnose.catalogue import Entry, Retry, Tier, load
from supervisor.diagnose.live import diagnose_lines
from supervisor.diagnose.own import end_lines

# What was raised, as the catalogue's reading gives it: the class, perhaps with its module, then the message.
_RAISED = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure)|timeout))(?::\s|\s*$)"
)
# The trainer's words for a rank that another one looked for in vain.
_ABSENT = re.compile(r"\brank (\d+(?:, \d+)*) (?:did not come|is there more than once)")
_UNREACHED = re.compile(r"\bcannot reach rank 0\b")
# What differs between ranks that suffer from the same: their numbers, times, process numbers.
_MOVING = re.compile(r"(?i:\b(rank[ :=]{0,2}))\d+|\b\d+[:.]\d[\d:.]*(?!\w)")
_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"})
# Exit codes with a meaning (contract.states.ExitCode) need no words: the entry, and the sentence's beginning.
_CODES = {
    ExitCode.CONFIG: ("ciuic-config", "refused its configuration"),
    ExitCode.REFUSED: ("ciuic-refused-checkpoint", "refused to train"),
    ExitCode.NUMERICS: ("ciuic-numerics", "found numbers that are not finite"),
}
# Causes that lie outside the program, unless their entry says that trying again is no use. Coming back at the same
# step proves nothing (rule 10).
_OF_THE_NODE = frozenset(
    {
        Cause.COMM_TIMEOUT,
        Cause.COMM_PEER,
        Cause.RENDEZVOUS,
        Cause.PORT,
        Cause.NETWORK,
        Cause.GPU_HARDWARE,
        Cause.GPU_ERROR,
        Cause.FILESYSTEM,
        Cause.NODE_FAILURE,
        Cause.PREEMPTED,
        Cause.TIME_LIMIT,
        Cause.LAUNCH,
        Cause.CANCELLED,
    }
)


@dataclass(frozen=True, kw_only=True)
class End:
    """One worker's end, from its exit record or, sooner, from a beat. `age_s`: how long ago, where a beat tells.

    `unsaved`: it was asked to save and did not listen.
    """

    rank: int
    node: str
    code: int
    step: int
    phase: str
    recorded: bool
    ended_s: float = 0.0
    age_s: float | None = None
    exception_type: str = ""
    exception_text: str = ""
    lines: tuple[str, ...] = ()
    unsaved: bool = False


@dataclass(frozen=True, kw_only=True)
class Explained:
    """`what` completes "rank 3 on node-1 …". `signature` is "" for what can never be deterministic.

    `entry`: the catalogue's name for it. `victim`: it suffers from somebody else's failure. `accused`: ranks that
    the message names as the cause, where they are others than the one that ended.
    `missed_master`: it did not reach rank 0; whose fault that is, the others' words tell.
    """

    cause: Cause
    what: str
    signature: str
    entry: str = ""
    victim: bool = False
    accused: tuple[int, ...] = ()
    missed_master: bool = False


def explain(end: End) -> Explained:
    """Why this worker ended. The record's code first where it has a meaning, then what its words say."""
    return _explain(replace(end, node="", ended_s=0.0, age_s=None))


def explain_roughly(end: End) -> Explained:
    """The same but for numbers in the words: cheap for thousands of ranks that say the same of each other."""
    return _explain_roughly(replace(end, node="", ended_s=0.0, age_s=None))


@lru_cache(maxsize=20_000)
def _explain_roughly(end: End) -> Explained:
    alike = replace(
        end,
        rank=0,
        step=0,
        lines=tuple(_MOVING.sub(_same, line) for line in end.lines),
        exception_text=_MOVING.sub(_same, end.exception_text),
    )
    return explain(alike)


def _same(moving: re.Match[str]) -> str:
    return f"{moving[1]}0" if moving[1] else "00:00:00.0"


@lru_cache(maxsize=20_000)
def _explain(end: End) -> Explained:
    if end.code in _CODES:
        name, what = _CODES[ExitCode(end.code)]
        last = _last(end) or f"exit code {end.code}"
        return _explained(load().named(name), end, f"{what}: {last}")
    if end.code == -signal.SIGKILL and end.exception_type == KERNEL_OOM:
        words = f"{Cause.HOST_OOM}|{end.phase}"
        what = f"was killed by SIGKILL: {end.exception_text}"
        return Explained(cause=Cause.HOST_OOM, what=what, signature=words, entry="kernel-oom-killer")
    if end.code < 0 and from_outside(end.code):
        what = f"was killed by {signal_name(end.code)}"
        return Explained(cause=Cause.SIGNAL, what=what, signature="", entry="exit-killed")
    lines = end_lines(
        rank=end.rank,
        code=end.code,
        words=end.lines,
        exception=_own_words(end),
        where=f"step {end.step}, {end.phase}",
    )
    found = diagnose_lines(tuple(lines))
    end = _with_own_words(end, found.text)
    how = f"was killed by {signal_name(end.code)}" if end.code < 0 else f"failed with exit code {end.code}"
    last = _last(end, found.text if found.cause not in {Cause.UNEXPLAINED, Cause.SIGNAL} else "")
    meeting = found.cause is Cause.RENDEZVOUS
    accused = _accused(found.text) if meeting else ()
    explained = _explained(found.entry, end, f"{how}: {last}" if last else how)
    return replace(
        explained,
        accused=accused,
        victim=found.entry.tier is Tier.VICTIM and not accused,
        missed_master=meeting and bool(_UNREACHED.search(found.text)),
    )


def cause_in(text: str) -> Cause:
    """The cause that an error's words name; UNEXPLAINED: none that we know."""
    lines = end_lines(rank=0, code=1, words=(), exception=text, where="a save")
    return diagnose_lines(tuple(lines)).cause


def _accused(text: str) -> tuple[int, ...]:
    found = _ABSENT.search(text)
    return tuple(int(number) for number in found[1].split(",")) if found else ()


def from_outside(code: int) -> bool:
    """Whether this exit code is a signal that a process does not send to itself by a bug."""
    return code < 0 and signal_name(code) in _OUTSIDE


def signal_name(code: int) -> str:
    try:
        return signal.Signals(abs(code)).name
    except ValueError:
        return f"signal {abs(code)}"


def normalised(text: str) -> str:
    """The text without what changes from one time to the next: numbers, addresses, paths' random parts."""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x#", text)
    text = re.sub(r"\b[0-9a-fA-F]{8,}\b", "#", text)
    return re.sub(r"\d+(?:\.\d+)*", "#", one_line(text, 200))


def _explained(entry: Entry, end: End, what: str) -> Explained:
    """A failure of the program: cause, kind of exception, place and last line say whether it is the same again."""
    kind = end.exception_type or (signal_name(end.code) if end.code < 0 else f"exit {end.code}")
    words = "|".join((entry.cause, kind, normalised(end.exception_text.strip().split("\n")[-1])))
    # Coming back at the same place proves that trying again is useless, but not of what the machine may have caused.
    proves = entry.cause not in _OF_THE_NODE or entry.retry is Retry.NO
    signature = words if proves else ""
    return Explained(cause=entry.cause, what=what, signature=signature, entry=entry.name)


def _with_own_words(end: End, text: str) -> End:
    """A program that does not write its exception into the page prints it: take it from what was read."""
    found = None if end.exception_type else _RAISED.match(text)
    if found is None:
        return end
    return replace(end, exception_type=found[1].rpartition(".")[2], exception_text=text)


def _own_words(end: End) -> str:
    """The exception as Python prints it. Its text may begin with its type already."""
    if not end.exception_type or end.exception_text.startswith(end.exception_type):
        return end.exception_text if end.exception_type else ""
    return f"{end.exception_type}: {end.exception_text}"


def _last(end: End, said: str = "") -> str:
    """The last line of the exception, else the decisive line, else the last of the output."""
    if end.exception_type:
        text = end.exception_text.strip().split("\n")[-1]
        if end.exception_type not in text:
            text = f"{end.exception_type}: {text}" if text else end.exception_type
        return one_line(text)
    return one_line(said or next((line for line in reversed(end.lines) if line.strip()), ""))
