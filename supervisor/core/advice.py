"""What a person can do about a failure."""

from contract.events import Judged
from contract.states import Cause
from supervisor.core.phrases import FIXES, word
from supervisor.diagnose.live import known_entry

# Of these our own settings and commands say more than the catalogue.
_OUR_ADVICE = frozenset({Cause.NAN, Cause.CHECKPOINT})


def advice(failure: Judged, language: str) -> str:
    """The catalogue's likely fix for what was recognised, else the one for its class."""
    entry = known_entry(failure.entry)
    if entry is not None and failure.cause not in _OUR_ADVICE:
        return entry.zh if language == "zh" else entry.en
    return word(FIXES, failure.cause if failure.cause in FIXES else "", language)
