"""The run's metrics, read as they grow: a look costs only what is new, and a long history is entered near its end."""

from pathlib import Path

from contract.config import RunConfig
from contract.layout import RunDir, parse_metrics_name
from contract.metrics import row_of
from supervisor.core.curve import Curve, CurveLook, row_from

_TAIL = 256 << 10  # bytes of one file, some 1,000 steps; what lies before them is not usual any more
_FILES = 8


class CurveReader:
    """Keeps the fold of one run's rows, and where in which file it stands."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._curve = Curve()
        self._at = (0, 0)
        self._offset = 0
        self._rest = b""
        self._seen: CurveLook | None = None
        self._first = True

    def look(self, at: tuple[int, int], config: RunConfig) -> CurveLook | None:
        """What the metrics say when (attempt, generation) is the newest. Generations before it write no more."""
        grown = self._catch_up() if self._first else False
        for path, key in self._next_files(at):
            if key != self._at:
                self._at, self._offset, self._rest = key, 0, b""
            grown = self._read(path) or grown
        if grown:
            self._seen = self._curve.look(
                slow_s=config.monitor.slow_s,
                sigma=config.monitor.spike_sigma,
                least_scale=least_scale(config),
            )
        return self._seen

    def _catch_up(self) -> bool:
        """The newest files that earlier generations left, the first time."""
        found = sorted(
            (key, path)
            for path in self._run.metrics.glob("*.jsonl")
            if (key := parse_metrics_name(path.name))
        )
        grown = False
        for key, path in found[-_FILES:]:
            self._at, self._offset, self._rest = key, 0, b""
            grown = self._read(path) or grown
        self._first = False
        return grown

    def _next_files(self, at: tuple[int, int]) -> list[tuple[Path, tuple[int, int]]]:
        """The file where we stand, to its end, and then that of the newest generation."""
        keys = [self._at] if at <= self._at else [self._at, at]
        return [(self._run.metrics_of(*key), key) for key in keys if key != (0, 0)]

    def _read(self, path: Path) -> bool:
        """Add the whole lines that are new. A file that is shorter than before is another one."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._offset:
                    self._offset, self._rest = 0, b""
                if size - self._offset > _TAIL:
                    self._offset, self._rest = size - _TAIL, b""
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except FileNotFoundError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        rows = [row for line in lines if (row := row_of(line)) is not None]
        for row in rows:
            self._curve.add(row_from(row, self._at))
        return bool(rows)


def least_scale(config: RunConfig) -> float:
    """The loss scale below which DeepSpeed does not go; 0 where it is fixed."""
    fp16 = config.deepspeed.inline.get("fp16", {})
    if not isinstance(fp16, dict) or fp16.get("loss_scale", 0):
        return 0.0
    return float(fp16.get("min_loss_scale", 1.0))
