import os, time, pytest
from contract import events as ev
from tests.cluster import faults
from tests.cluster.conftest import *
from tests.standin import expected_losses
pytestmark = pytest.mark.timeout(400)

def test_scratch(field):
    config = field.config("--step-time", "0.05", run={"steps": 6000}, job={"spare_nodes": 1})
    run = field.submit(config)
    field.supervise()
    field.until_step(run, 12)
    for name in os.environ["FAULTS"].split(","):
        field.until_event(run, ev.CheckpointSeen, 60, newest(run))
        began = time.monotonic()
        try:
            verdict, back = getattr(faults, name)(field, run)
            print(f"{name}: found after {verdict.detected_s:.1f} s, lost {back.detect_s + back.restart_s:.1f} s,"
                f" {back.repeated_steps} steps repeated, {time.monotonic() - began:.1f} s in all")
        finally:
            print(field.explain(run)[-3000:])
        for node in field.cluster.nodes:
            if not field.cluster._node_runs(node):
                field.cluster.start_node(node)
    field.hurry.touch()
    assert field.until_end(run) == "completed"
    assert losses(run) == expected_losses(6000)
