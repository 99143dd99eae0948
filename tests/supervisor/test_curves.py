"""The metrics as they grow, and beats that come in lumps: what a network file system shows of other hosts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from contract.beat import Beat
from contract.control import Control, write_control
from contract.states import AgentPhase, ControlPhase, JobState, VerdictKind
from supervisor.adapters.curves import CurveReader
from supervisor.adapters.lag import BeatLag, is_network
from supervisor.adapters.rundir import Observer
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook
from tests.supervisor.conftest import bare_run, config_of
from tests.supervisor.core.make import history

CONFIG = config_of()


def line(step: int, **other) -> bytes:
    row = {"step": step, "loss": 2.0, "grad_norm": 1.0, "step_s": 1.0, "tokens_per_s": 100.0, **other}
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def run(root):
    return bare_run(root)


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_rows_are_read_as_they_come_and_a_torn_one_when_it_is_whole(run) -> None:
    reader, path = CurveReader(run), run.metrics_of(1, 1)
    assert reader.look((1, 1), CONFIG) is None
    add(path, line(1) + line(2)[:10])
    assert reader.look((1, 1), CONFIG).step == 1
    add(path, line(2)[10:] + b"\0\0\0\n\xff not json\n" + line(3))
    assert reader.look((1, 1), CONFIG).step == 3


def test_the_next_generation_takes_over_and_the_last_rows_of_the_old_one_are_not_missed(run) -> None:
    reader = CurveReader(run)
    add(run.metrics_of(1, 1), line(1))
    reader.look((1, 1), CONFIG)
    add(run.metrics_of(1, 1), line(2))
    add(run.metrics_of(1, 2), line(2, loss=3.0))
    seen = reader.look((1, 2), CONFIG)
    assert (seen.generation, seen.step, seen.numbers.loss) == (2, 2, 2.5)
    add(run.metrics_of(1, 1), line(900))  # a zombie
    assert reader.look((1, 2), CONFIG).step == 2


def test_a_supervisor_that_comes_later_knows_the_usual_pace(run) -> None:
    add(run.metrics_of(1, 1), b"".join(line(step) for step in range(1, 400)))
    add(run.metrics_of(1, 3), b"".join(line(step) for step in range(400, 700)))
    add(run.metrics_of(1, 3), b"".join(line(step, step_s=2.0, tokens_per_s=50.0) for step in range(700, 800)))
    pace = CurveReader(run).look((1, 3), CONFIG).pace
    assert (pace.usual_s, pace.recent_s) == (1.0, 2.0)


def test_a_file_that_was_truncated_is_read_anew_and_a_huge_one_near_its_end(run) -> None:
    reader, path = CurveReader(run), run.metrics_of(1, 1)
    add(path, b"".join(line(step) for step in range(1, 40_000)))
    assert reader.look((1, 1), CONFIG).step == 39_999
    path.write_bytes(line(7))
    assert reader.look((1, 1), CONFIG).step == 7


def test_a_run_without_metrics_has_no_curve(run) -> None:
    assert CurveReader(run).look((0, 0), CONFIG) is None


# --- news that is late


class LaggingDisk:
    """Beats of two hosts through attribute caches of 60 s: each file shows its content as it was at the last look-up.

    There is no network file system here: this stands in for its client, between the file and the observer.
    """

    def __init__(self, lag_s: float) -> None:
        self.lag_s, self.now = lag_s, 0.0
        self.stopped: dict[str, float] = {}
        self._cached: dict[str, tuple[float, Beat]] = {}

    def read(self, path: Path) -> Beat:
        at, beat = self._cached.get(path.name, (float("-inf"), None))
        offset = 17.0 if path.name == "n1" else 0.0  # caches do not expire together
        if beat is None or self.now - at >= self.lag_s - (offset if at == 0.0 else 0.0):
            alive_until = min(self.now, self.stopped.get(path.name, self.now))
            beat = Beat(
                node=path.name,
                attempt=1,
                generation=1,
                sequence=int(alive_until) + 1,
                phase=AgentPhase.RUNNING,
                ready_for=1,
            )
            self._cached[path.name] = (self.now, beat)
        return self._cached[path.name][1]


@pytest.fixture
def shared(run, monkeypatch):
    """A run on a network file system with two nodes."""
    monkeypatch.setattr("supervisor.adapters.lag.is_network", lambda _place: True)
    write_control(run, Control(attempt=1, generation=1, phase=ControlPhase.GO, members=("n0", "n1"), port=1))
    run.attempt(1).beats.mkdir(parents=True)
    for name in ("n0", "n1"):
        run.attempt(1).beat(name).touch()
    return run


CLUSTER = config_of(job={"executor": "slurm", "nodes": 2, "command": ["true"]})


def verdicts(
    run, disk: LaggingDisk, start: int, end: int, observer: Observer
) -> list[tuple[float, VerdictKind]]:
    found = []
    past = replace(history(), created_at=0.0)
    for second in range(start, end):
        disk.now = float(second)
        look = observer.look(CLUSTER, lambda _: JobLook(state=JobState.RUNNING, job_id="77"), disk.now)
        found.append((disk.now, judge(look, past, CLUSTER, disk.now).kind))
    return found


@pytest.mark.parametrize("lag_s", [1.0, 15.0, 60.0])
def test_attribute_caches_lose_no_node(shared, lag_s: float) -> None:
    disk = LaggingDisk(lag_s)
    observer = Observer(shared, read=disk.read)
    found = verdicts(shared, disk, 0, 1200, observer)
    assert not {kind for _, kind in found} & {VerdictKind.NODE_LOST, VerdictKind.HUNG}
    unknown = [at for at, kind in found if kind is VerdictKind.UNKNOWN]
    assert all(at < lag_s for at in unknown), "only until each beat has been seen to move"


@pytest.mark.parametrize(("lag_s", "within"), [(1.0, 15), (60.0, 135)])
def test_a_node_that_dies_behind_such_caches_is_lost_all_the_same(shared, lag_s: float, within: int) -> None:
    disk = LaggingDisk(lag_s)
    observer = Observer(shared, read=disk.read)
    verdicts(shared, disk, 0, 400, observer)
    disk.stopped["n1"] = 400.0
    lost = [at for at, kind in verdicts(shared, disk, 400, 800, observer) if kind is VerdictKind.NODE_LOST]
    assert lost
    assert lost[0] - 400 <= within


def test_one_nodes_hiccup_does_not_make_us_patient_with_all(tmp_path) -> None:
    lag = BeatLag(tmp_path)
    for second in range(300):
        for node in ("n0", "n1", "n2"):
            if node != "n2" or not 100 <= second < 150:
                lag.moved(node, float(second))
    assert lag.seconds(1.0, 300.0) == 0.0


def test_our_own_pause_is_no_lag(tmp_path) -> None:
    lag = BeatLag(tmp_path)
    lag.moved("n0", 1.0)
    lag.forget_moves()
    lag.moved("n0", 500.0)
    assert lag.seconds(1.0, 501.0) == 0.0


def test_a_local_file_system_is_told_from_a_network_one() -> None:
    assert not is_network(Path("/proc"))
