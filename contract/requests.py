"""requests/<id>.json: what commands ask for. The lock's holder consumes them in order of their ids."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from contract import files
from contract.layout import RunDir

VERSION = 1


class RequestKind(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    DUMP = "dump"
    SET = "set"
    PROFILE = "profile"
    ACK = "ack"
    SILENCE = "silence"
    UNKNOWN = "unknown"

    @property
    def only_told(self) -> bool:
        """Whether it concerns what people are told, and not what is done with the run."""
        return self in {RequestKind.ACK, RequestKind.SILENCE}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One wish of a person. `by` is the user's name, for the journal.

    `args` of a resume or set: `set`, what to change; of a profile: `steps` and `ranks`.
    """

    id: str
    kind: RequestKind
    by: str
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """Changes of the configuration, as `section.key=value`."""
        found = self.args.get("set", ())
        return tuple(str(item) for item in found) if isinstance(found, list | tuple) else ()


def new_id(now: float) -> str:
    """Sorts by time of asking; unique by its random part."""
    return f"{int(now * 1000):013d}-{secrets.token_hex(3)}"


def write_request(run: RunDir, request: Request) -> None:
    run.requests.mkdir(exist_ok=True)
    value = {"version": VERSION, "kind": request.kind, "by": request.by, "args": dict(request.args)}
    files.create_json(run.requests / f"{request.id}.json", value)


def read_requests(run: RunDir) -> list[Request]:
    """All open requests, oldest first. One that cannot be read is UNKNOWN: it is answered, not skipped."""
    found = []
    for path in sorted(run.requests.glob("*.json")):
        try:
            value = files.read_json(path)
        except ValueError:
            value = {}
        if value is None:
            continue
        kind = value.get("kind")
        args = value.get("args")
        found.append(
            Request(
                id=path.stem,
                kind=RequestKind(kind) if kind in set(RequestKind) else RequestKind.UNKNOWN,
                by=str(value.get("by", "")),
                args=args if isinstance(args, dict) else {},
            )
        )
    return found


def remove_request(run: RunDir, request_id: str) -> None:
    """After its outcome is journalled."""
    (run.requests / f"{request_id}.json").unlink(missing_ok=True)
