"""Nodes of a real Slurm compared before they train: the one that computes wrongly is named, excluded, and done without."""

from pathlib import Path

import pytest

from contract import events as ev
from contract.states import Cause
from tests.cluster.conftest import Field, bodies, losses, members
from tests.standin import expected_losses

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

STEPS = 30
# Every Python process imports this first; one node's part of the comparison gets a product that is wrong.
WRONG = """
import os, sys
if "trainer.measure.pairs" in sys.orig_argv and os.environ.get("SLURMD_NODENAME") == {node!r}:
    import torch
    right = torch.matmul
    def matmul(left, other):
        found = right(left, other)
        found[100, 100] += 1.0
        return found
    torch.matmul = matmul
"""


def test_a_node_that_computes_wrongly_never_trains(field: Field, tmp_path: Path) -> None:
    bad = field.cluster.nodes[1]
    (tmp_path / "sitecustomize.py").write_text(WRONG.format(node=bad))
    config = field.config(
        run={"steps": STEPS},
        job={"nodes": 3, "environment": {"PYTHONPATH": str(tmp_path)}},
        node={"compare_s": 120},
        supervisor={"exclude_share": 0.5},
    )
    run = field.submit(config)
    field.supervise()
    field.until_event(run, ev.NodeLeftOut, 120, node=bad)
    again = field.until_event(run, ev.AttemptIntended, 60, attempt=2).body
    assert again.exclude == (bad,)
    assert field.until_end(run, 150) == "completed"
    assert losses(run) == expected_losses(STEPS)
    assert bad not in members(run)
    assert {body.node for body in bodies(run, ev.NodeLeftOut)} == {bad}
    verdict = bodies(run, ev.Judged)[0]
    assert verdict.cause == Cause.LAUNCH
    assert bad in verdict.nodes
    assert "computes or receives something else than its neighbours" in verdict.reason
    assert f"{bad} was left out before it trained" in field.explain(run)
