"""Exit records: srun's words, shell codes and signals, brought to one number and to the entry that it stands for. Pure."""

import re
import signal
from collections.abc import Mapping

from supervisor.diagnose.catalogue import Catalogue, Entry

_WORDS = {
    "killed": signal.SIGKILL,
    "terminated": signal.SIGTERM,
    "aborted": signal.SIGABRT,
    "abort": signal.SIGABRT,
    "segmentation fault": signal.SIGSEGV,
    "bus error": signal.SIGBUS,
    "floating point exception": signal.SIGFPE,
    "illegal instruction": signal.SIGILL,
    "hangup": signal.SIGHUP,
    "interrupt": signal.SIGINT,
    "user defined signal 1": signal.SIGUSR1,
    "user defined signal 2": signal.SIGUSR2,
}
# Signals that a launcher sends to the others once one has failed.
_PASSED_ON = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCONT})
_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGQUIT})


def exit_code(found: Mapping[str, str | None]) -> int:
    """The code, negative for a signal however it was written."""
    if word := (found.get("signal") or "").strip().lower():
        if word.isdecimal():
            return -int(word)
        if word.startswith("sig") and word.upper() in signal.Signals.__members__:
            return -signal.Signals[word.upper()]
        return -_WORDS.get(word, 0)
    code = int(found["code"] or 0)
    return 128 - code if 128 < code < 128 + 65 else code


def entry_of_exit(catalogue: Catalogue, entry: Entry, code: int) -> Entry:
    """What an exit with this code means: the record's own entry only where the code says no more."""
    if code == 0 or -code in _PASSED_ON:
        return catalogue.named("exit-passed-on")
    if code == -signal.SIGABRT:
        return catalogue.named("exit-aborted")
    if -code in _OUTSIDE:
        return catalogue.named("exit-killed")
    return catalogue.named("exit-crashed") if code < 0 else entry


def number_of(text: str | None) -> int | None:
    """The number, None where there is none or several ("0-3,7")."""
    return int(text) if text is not None and re.fullmatch(r"\d+", text.strip()) else None
