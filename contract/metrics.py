"""metrics/aNNNN-gNNNN.jsonl: one line a step. For a step that two generations have, the later one counts."""

import json
from collections.abc import Mapping
from typing import Any

from contract.layout import RunDir, parse_metrics_name
from contract.manifest import in_lineage, read_resumes


def merged(run: RunDir) -> dict[int, Mapping[str, Any]]:
    """Step → its row, over all generations of the lineage, in order of steps."""
    resumes = read_resumes(run)
    rows: dict[int, Mapping[str, Any]] = {}
    writers = sorted(
        (writer, path) for path in run.metrics.glob("*.jsonl") if (writer := parse_metrics_name(path.name))
    )
    for writer, path in writers:
        for line in path.read_bytes().split(b"\n"):
            row = row_of(line)
            if row is not None and in_lineage(row["step"], writer, resumes):
                rows[row["step"]] = row
    return dict(sorted(rows.items()))


def row_of(line: bytes) -> dict[str, Any] | None:
    """The row in this line; None for a torn one (killed in mid-write)."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None
