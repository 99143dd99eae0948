"""What one worker's end means: its cause, a signature for "the same again", and a sentence."""

import re
import signal
from dataclasses import dataclass, replace

from contract.states import Cause, ExitCode
from supervisor.core.text import one_line

# The last line of a Python traceback, as it is printed.
_EXCEPTION = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure))(?::\s.*)?$")
# The trainer's words for a rank that another one looked for in vain.
_ABSENT = re.compile(r"\brank (\d+(?:, \d+)*) (?:did not come|is there more than once)")
_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"})

# First match wins, on the exception and then on the last lines. The whole catalogue comes with its own issue.
_RULES: tuple[tuple[Cause, re.Pattern[str]], ...] = tuple(
    (cause, re.compile(pattern, re.IGNORECASE))
    for cause, pattern in (
        (Cause.GPU_OOM, r"CUDA out of memory|OutOfMemoryError|HIP out of memory|CUDA error: out of memory"),
        (
            Cause.HOST_OOM,
            r"\bMemoryError\b|Cannot allocate memory|oom-kill|DefaultCPUAllocator: can't allocate",
        ),
        (Cause.DISK_FULL, r"No space left on device|\bENOSPC\b|Disk quota exceeded|\bEDQUOT\b"),
        (Cause.PORT, r"Address already in use|\bEADDRINUSE\b"),
        (Cause.RENDEZVOUS, r"\bRendezvousError\b"),
        (
            Cause.COMM_TIMEOUT,
            (
                r"Watchdog caught collective operation timeout|(?:NCCL|gloo|collective).{0,80}tim(?:ed|e)[ -]?out"
                r"|Timed out waiting \d+ ?ms for (?:recv|send)|Wait timeout|DistStoreError.{0,80}timed out"
            ),
        ),
        (
            Cause.COMM_PEER,
            (
                r"Connection closed by peer|failed to recv, got 0 bytes|Connection reset by peer|Broken pipe.{0,80}(?:gloo|nccl)|socket closed"
                r"|remote process exited|NCCL communicator was aborted|gloo.{0,200}(?:refused|closed|reset|broken)"
                r"|(?:ConnectionResetError|ConnectionAbortedError|BrokenPipeError)\b"
            ),
        ),
        (Cause.GPU_HARDWARE, r"uncorrectable ECC|Xid .{0,20}: (?:48|63|64|74|79|94|95)\b|fallen off the bus"),
        (Cause.GPU_ERROR, r"CUDA error:|CUDNN_STATUS_|CUBLAS_STATUS_|device-side assert"),
        (
            Cause.FILESYSTEM,
            r"Stale file handle|Transport endpoint is not connected|Input/output error|Read-only file",
        ),
        (
            Cause.IMPORT,
            r"\b(?:ModuleNotFoundError|ImportError)\b|cannot open shared object file|undefined symbol",
        ),
        (Cause.DATALOADER, r"DataLoader worker .{0,80}(?:exited unexpectedly|is killed)"),
    )
)
# Causes that lie outside the program. Coming back at the same step proves nothing (rule 10).
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
    """One worker's end, from its exit record or, sooner, from a beat. `age_s`: how long ago, where a beat tells."""

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


@dataclass(frozen=True, kw_only=True)
class Explained:
    """`what` completes "rank 3 on node-1 …". `signature` is "" for what can never be deterministic.

    `accused`: ranks that the message names as the cause, where they are others than the one that ended.
    """

    cause: Cause
    what: str
    signature: str
    accused: tuple[int, ...] = ()


def explain(end: End) -> Explained:
    """Why this worker ended. Its own words first, then the code."""
    end = _with_own_words(end)
    text = _words(end)
    if end.code == ExitCode.CONFIG:
        return _explained(Cause.CONFIG, end, f"refused its configuration: {_last(end) or 'exit code 78'}")
    if end.code == ExitCode.REFUSED:
        return _explained(Cause.CHECKPOINT, end, f"refused to train: {_last(end) or 'exit code 77'}")
    if end.code == ExitCode.NUMERICS:
        return _explained(
            Cause.NAN, end, f"found numbers that are not finite: {_last(end) or 'exit code 65'}"
        )
    if end.code < 0 and from_outside(end.code):
        return Explained(cause=Cause.SIGNAL, what=f"was killed by {signal_name(end.code)}", signature="")
    cause = next((cause for cause, pattern in _RULES if pattern.search(text)), None)
    if cause is None:
        cause = Cause.SIGNAL if end.code < 0 else Cause.TRACEBACK if end.exception_type else Cause.UNEXPLAINED
    how = f"was killed by {signal_name(end.code)}" if end.code < 0 else f"failed with exit code {end.code}"
    last = _last(end)
    found = _explained(cause, end, f"{how}: {last}" if last else how)
    return replace(found, accused=_accused(text)) if cause is Cause.RENDEZVOUS else found


def _accused(text: str) -> tuple[int, ...]:
    found = _ABSENT.search(text)
    return tuple(int(number) for number in found[1].split(",")) if found else ()


def deterministic_kind(cause: Cause, signature: str) -> bool:
    """Whether this failure, coming back at the same place, would prove that trying again is useless."""
    return bool(signature) and cause not in _OF_THE_NODE


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


def _explained(cause: Cause, end: End, what: str) -> Explained:
    """A failure of the program: cause, kind of exception, place and last line say whether it is the same again."""
    kind = end.exception_type or (signal_name(end.code) if end.code < 0 else f"exit {end.code}")
    words = "|".join((cause, kind, normalised(end.exception_text.strip().split("\n")[-1])))
    return Explained(cause=cause, what=what, signature=words if deterministic_kind(cause, words) else "")


def _with_own_words(end: End) -> End:
    """A program that does not write its exception into the page prints it: take it from its last traceback."""
    if end.exception_type or not any(
        line.startswith("Traceback (most recent call last)") for line in end.lines
    ):
        return end
    found = next((match for line in reversed(end.lines) if (match := _EXCEPTION.match(line))), None)
    if found is None:
        return end
    return replace(end, exception_type=found[1].rpartition(".")[2], exception_text=found[0])


def _words(end: End) -> str:
    own = f"{end.exception_type}: {end.exception_text}" if end.exception_type else ""
    # Lines explain only what has no exception of its own: they are full of other things.
    return own or "\n".join(end.lines)


def _last(end: End) -> str:
    """The last line of the exception, else of the output."""
    if end.exception_type:
        text = end.exception_text.strip().split("\n")[-1]
        if end.exception_type not in text:
            text = f"{end.exception_type}: {text}" if text else end.exception_type
        return one_line(text)
    return one_line(next((line for line in reversed(end.lines) if line.strip()), ""))
