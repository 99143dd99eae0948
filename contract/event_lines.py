"""The lines of the journal: how an event is written down and read.

A line is `{"v":1,"seq":…,"time":…,"epoch":…,"kind":"…", …the fields of the kind}`. Readers skip kinds that
they do not know, and ignore an event of an older epoch that stands after a newer one's: a supervisor that was
stopped, overtaken and woke up (design rule 4).
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from contract import events as ev

VERSION = 1

KINDS: Mapping[str, type[ev.Body]] = {
    "run-created": ev.RunCreated,
    "supervisor-started": ev.SupervisorStarted,
    "queue-silent": ev.QueueSilent,
    "queue-answered": ev.QueueAnswered,
    "attempt-intended": ev.AttemptIntended,
    "attempt-submitted": ev.AttemptSubmitted,
    "submit-failed": ev.SubmitFailed,
    "cancel-intended": ev.CancelIntended,
    "attempt-ended": ev.AttemptEnded,
    "generation-intended": ev.GenerationIntended,
    "generation-went": ev.GenerationWent,
    "generation-resumed": ev.GenerationResumed,
    "judged": ev.Judged,
    "evidence-kept": ev.EvidenceKept,
    "noticed": ev.Noticed,
    "notice-over": ev.NoticeOver,
    "recovered": ev.Recovered,
    "checkpoint-seen": ev.CheckpointSeen,
    "save-failed": ev.SaveFailed,
    "node-left-out": ev.NodeLeftOut,
    "batch-changed": ev.BatchChanged,
    "state-changed": ev.StateChanged,
    "bounds-set": ev.BoundsSet,
    "settings-changed": ev.SettingsChanged,
    "request-taken": ev.RequestTaken,
    "request-done": ev.RequestDone,
    "hot-set": ev.HotSet,
    "profile-asked": ev.ProfileAsked,
    "profile-kept": ev.ProfileKept,
    "alert-queued": ev.AlertQueued,
    "alert-tried": ev.AlertTried,
    "alert-delivered": ev.AlertDelivered,
    "alert-failed": ev.AlertFailed,
    "alerts-acknowledged": ev.AlertsAcknowledged,
    "alerts-silenced": ev.AlertsSilenced,
}
_WORDS = {kind: word for word, kind in KINDS.items()}


def _names(kind: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Of all its fields, and of those without a default."""
    bare = (item for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING)
    return frozenset(item.name for item in fields(kind)), frozenset(item.name for item in bare)


_FIELDS = {kind: _names(kind) for kind in KINDS.values()}


def encode(event: ev.Event) -> bytes:
    """One line of the journal."""
    value = {
        "v": VERSION,
        "seq": event.seq,
        "time": round(event.time, 3),
        "epoch": event.epoch,
        "kind": _WORDS[type(event.body)],
        **asdict(event.body),
    }
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n"


def decode(line: bytes) -> ev.Event | None:
    """The event in this line; None for a kind that this version does not know.

    Raises:
        ValueError: the line is not an event.
    """
    value = json.loads(line)
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError("not a journal event")  # noqa: TRY004
    kind = KINDS.get(value["kind"])
    if kind is None:
        return None
    known, needed = _FIELDS[kind]
    found = {name: _tuples(item) for name, item in value.items() if name in known}
    if missing := needed - found.keys():
        raise ValueError(f"{value['kind']}: {', '.join(sorted(missing))} missing")
    body = kind(**found)
    return ev.Event(seq=int(value["seq"]), time=float(value["time"]), epoch=int(value["epoch"]), body=body)


def _tuples(value: Any) -> Any:
    """JSON has lists; our bodies hold tuples. Mappings stay as they are."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
