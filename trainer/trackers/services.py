"""Weights & Biases and SwanLab, fed from the metrics files by a process beside rank 0. Training never waits for it.

A service cannot take a step back: of a step that is done again the first value stays there. While a service is away its
rows wait in the metrics files, and the next process begins where the last one was heard.
"""

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import files
from contract.config.trackers import Trackers
from contract.layout import RunDir
from contract.metrics import merged, row_of
from trainer.trackers.scalars import scalars

_LOOK_S = 1.0
_AGAIN_S = 60.0
_START_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Link:
    """An open experiment at a service."""

    log: Callable[[Mapping[str, float], int], None]
    finish: Callable[[], None]


class Rows:
    """The rows after the step `after`, those of earlier generations first, then this one's as they come."""

    def __init__(self, run: RunDir, attempt: int, generation: int, *, resumed_at: int, after: int) -> None:
        self._waiting = [row for step, row in merged(run).items() if after < step <= resumed_at]
        self._path, self._after = run.metrics_of(attempt, generation), max(after, resumed_at)
        if after > resumed_at:
            self._after = after
        self._offset, self._rest = 0, b""

    def each(self) -> Iterator[Mapping[str, Any]]:
        """One at a time; a row counts as taken when the next one is asked for."""
        self._read()
        while self._waiting:
            yield self._waiting[0]
            del self._waiting[0]

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        rows = (row for line in lines if (row := row_of(line)) is not None)
        self._waiting += [row for row in rows if row["step"] > self._after]


def feed(
    name: str,
    run: RunDir,
    wanted: Trackers,
    at: tuple[int, int],
    *,
    resumed_at: int,
    over: threading.Event,
) -> None:
    """Until `over`: everything to this service, again and again when it is away. Then what is left, once."""
    state = run.trackers / f"{name}.json"
    rows = Rows(run, *at, resumed_at=resumed_at, after=_heard(state))
    link: Link | None = None
    while True:
        last = over.is_set()
        try:
            link = link or STARTS[name](run, wanted)
            heard = 0
            for row in rows.each():
                link.log(scalars(row), row["step"])
                heard = row["step"]
            if heard:
                files.replace_json(state, {"version": 1, "step": heard})
        except (
            Exception
        ) as error:  # whatever a service's own package does: training has nothing to do with it
            text = str(error).splitlines()[0] if str(error) else ""
            print(f"{name} is not reached ({type(error).__name__}: {text}); rows wait", file=sys.stderr)  # noqa: T201
            if not last:
                over.wait(_AGAIN_S)
        if last:
            break
        over.wait(_LOOK_S)
    if link is not None:
        link.finish()


def _heard(state: Path) -> int:
    try:
        value = files.read_json(state)
    except ValueError:
        return 0
    return int(value.get("step", 0)) if value else 0


def _wandb(run: RunDir, wanted: Trackers) -> Link:
    import wandb

    found = wandb.init(
        project=wanted.wandb_project,
        entity=wanted.wandb_entity or None,
        id=run.run_id,
        name=run.run_id,
        resume="allow",
        dir=str(run.trackers),
        settings=wandb.Settings(init_timeout=_START_S, console="off", silent=True),
    )
    return Link(log=lambda values, step: found.log(dict(values), step=step), finish=found.finish)


def _swanlab(run: RunDir, wanted: Trackers) -> Link:
    import swanlab

    swanlab.init(
        project=wanted.swanlab_project,
        workspace=wanted.swanlab_workspace or None,
        experiment_name=run.run_id,
        id=hashlib.sha256(run.run_id.encode()).hexdigest()[:21],  # it wants 21 characters
        resume="allow",
        logdir=str(run.trackers),
    )
    return Link(log=lambda values, step: swanlab.log(dict(values), step=step), finish=swanlab.finish)


STARTS: Mapping[str, Callable[[RunDir, Trackers], Link]] = {"wandb": _wandb, "swanlab": _swanlab}
