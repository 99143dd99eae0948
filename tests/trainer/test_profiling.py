"""A profile of a real training: what its regions cover, that the trace opens, and how a trace of a GPU is read."""

import gzip
import json

import pytest

from contract.profile import read_profiles, trace_of
from trainer.profiling.summary import summarise


@pytest.mark.train
def test_a_profile_says_where_the_time_of_real_steps_went(bench):
    run = bench(
        run={"steps": 16},
        profile={"at_steps": [8], "steps": 3, "ranks": [0, 1]},
        checkpoint={"interval_steps": 11},
        data={"evaluate_interval_steps": 10},
    )
    run.train()
    [place] = run.run.attempt(1).profiles.iterdir()
    assert place.name == "g0001-step-000000010", "the step after the one that warms up"
    profiles = read_profiles(place)
    assert [item.rank for item in profiles] == [0, 1]
    for item in profiles:
        timing = item.timing
        assert timing is not None, item.error
        regions = {region.name: region.seconds for region in timing.regions}
        assert {"data", "forward", "backward", "agree", "optimizer", "settle", "evaluate", "save"} < set(
            regions
        )
        named = sum(seconds for name, seconds in regions.items() if name != "rest")
        assert named == pytest.approx(timing.covered * timing.step_s)
        assert timing.covered >= 0.95
        # The loop's own clock says no more than the profiler's: it leaves evaluation and save out.
        loops_s = sum(row["step_s"] for step, row in run.merged().items() if 10 <= step <= 12) / 3
        assert loops_s <= 1.1 * timing.step_s
        assert 0 < timing.exposed_s <= timing.comm_s < timing.step_s
        assert item.overhead is not None
        assert max(region.peak_bytes or 0 for region in timing.regions) > 0
        assert timing.operators[0].seconds > 0
        trace = json.loads(gzip.decompress(trace_of(place, item.rank).read_bytes()))
        names = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
        assert sum(name.startswith("ProfilerStep#") for name in names) == 3
    assert not list(place.glob("*.json.tmp")), "the raw trace is gone"
    assert {row["step"] for row in run.merged().values()} == set(range(1, 17))


def event(cat, name, start, length, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "tid": 1, "args": args}


def test_on_a_device_its_own_time_counts_and_communication_under_computation_is_covered():
    events = [
        event("user_annotation", "ProfilerStep#1", 0.0, 1e6),
        event("user_annotation", "ciuic.forward", 0.0, 3e5),
        event("user_annotation", "ciuic.backward", 3e5, 6e5),
        event("cpu_op", "aten::mm", 1e5, 1e3, **{"External id": 7}),
        event("cuda_runtime", "cudaLaunchKernel", 1e5, 10, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 4e5, 10, correlation=2),
        # Started in the forward pass, run after it: it is the forward pass's work all the same.
        event("kernel", "gemm", 2e5, 4e5, correlation=1, **{"External id": 7}),
        event("kernel", "ncclDevKernel_AllReduce_Sum", 5e5, 3e5, correlation=2),
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "ts": 4.5e5,
            "args": {"Device Type": 1, "Total Allocated": 1 << 20},
        },
    ]
    timing = summarise({"traceEvents": events})
    assert (timing.step_s, timing.device) == (pytest.approx(1.0), "cuda")
    found = {region.name: region for region in timing.regions}
    assert found["forward"].device_s == pytest.approx(0.4)
    assert found["backward"].device_s == pytest.approx(0.3)
    assert found["backward"].peak_bytes == 1 << 20
    assert found["rest"].seconds == pytest.approx(0.1)
    assert timing.comm_s == pytest.approx(0.3)
    assert timing.exposed_s == pytest.approx(0.2), "0.5 to 0.6 s lies under the product"
    assert [item.name for item in timing.operators] == ["aten::mm", "ncclDevKernel_AllReduce_Sum"]


def test_a_trace_without_a_step_is_refused():
    with pytest.raises(ValueError, match="no step"):
        summarise({"traceEvents": []})
