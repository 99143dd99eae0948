"""One look at a run directory: what moved, what is torn, what cannot be read."""

from dataclasses import replace

import pytest

from contract.beat import Beat, BeatFile, WorkerBeat
from contract.config.checkpoint import Checkpoint
from contract.control import Claim, Control, Go, claim_attempt, create_go, write_control
from contract.exits import WorkerExit, write_exits
from contract.files import FileLock, create_json
from contract.manifest import Manifest, Shard, publish, retire
from contract.requests import Request, RequestKind, write_request
from contract.states import AgentPhase, ControlPhase, JobState, Phase
from supervisor.adapters.foreign import ForeignProgram
from supervisor.adapters.rundir import Observer
from supervisor.core.observation import JobLook
from tests.supervisor.conftest import bare_run, config_of

CONFIG = config_of(supervisor={"tick_s": 1.0})


def _job(attempt: int) -> JobLook:
    return JobLook(state=JobState.RUNNING, job_id=str(attempt))


def _beat(sequence: int, **changes) -> Beat:
    worker = WorkerBeat(rank=0, local_rank=0, pid=7, step=sequence, phase=Phase.FORWARD)
    beat = Beat(
        node="n0",
        attempt=1,
        generation=1,
        sequence=sequence,
        phase=AgentPhase.RUNNING,
        pid=5,
        workers=(worker,),
        usual={"forward": 0.5},
    )
    return replace(beat, **changes)


@pytest.fixture
def run(root):
    made = bare_run(root)
    write_control(made, Control(attempt=1, generation=1, phase=ControlPhase.PREPARE))
    return made


@pytest.fixture
def beats(run):
    file = BeatFile(run.attempt(1).beat("n0"))
    yield file
    file.close()


def _checkpoint(run, step: int, generation: int = 1):
    place = run.checkpoint(step, 1, generation)
    place.mkdir(parents=True)
    (place / "shard").write_bytes(b"12345")
    manifest = Manifest(
        run=run.run_id,
        step=step,
        attempt=1,
        generation=generation,
        world_size=1,
        tokens=0,
        position=0,
        shards=(Shard(path="shard", size=5, xxh3="0"),),
    )
    publish(place, manifest)
    return place


def test_silence_is_counted_on_our_clock_from_the_last_movement(run, beats) -> None:
    observer = Observer(run)
    beats.write(_beat(1))
    assert observer.look(CONFIG, _job, 100.0).nodes[0].silent_s == 0
    assert observer.look(CONFIG, _job, 103.0).nodes[0].silent_s == 3
    beats.write(_beat(2))
    seen = observer.look(CONFIG, _job, 104.0)
    assert (seen.nodes[0].silent_s, seen.step, seen.watched_s) == (0, 2, 4)


def test_eyes_that_were_shut_judge_nothing(run, beats) -> None:
    observer = Observer(run)
    beats.write(_beat(1))
    observer.look(CONFIG, _job, 100.0)
    observer.look(CONFIG, _job, 109.0)
    seen = observer.look(CONFIG, _job, 500.0)  # we were stopped in between, and the beat may have been too
    assert (seen.nodes[0].silent_s, seen.watched_s) == (0, 0)


def test_a_torn_beat_keeps_the_one_before(run, beats) -> None:
    observer = Observer(run)
    beats.write(_beat(1))
    observer.look(CONFIG, _job, 100.0)
    with run.attempt(1).beat("n0").open("r+b") as file:
        file.seek(40)
        file.write(b"\0\0\0\0")
    seen = observer.look(CONFIG, _job, 102.0)
    assert seen.nodes[0].beat.sequence == 1
    assert seen.nodes[0].silent_s == 2


def test_the_flock_tells_life_locally_and_nothing_elsewhere(run, beats) -> None:
    beats.write(_beat(1))
    place = run.attempt(1).alive_of("n0")
    place.parent.mkdir()
    lock = FileLock(place)
    assert lock.acquire()
    assert Observer(run).look(CONFIG, _job, 1.0).nodes[0].alive is True
    lock.release()
    assert Observer(run).look(CONFIG, _job, 1.0).nodes[0].alive is False
    slurm = config_of(job={"executor": "slurm"})
    assert Observer(run).look(slurm, _job, 1.0).nodes[0].alive is None


def test_members_come_from_the_go_file_first_and_from_control_later(run) -> None:
    assert Observer(run).look(CONFIG, _job, 1.0).members == ()
    run.attempt(1).path.mkdir()
    create_go(run, Go(attempt=1, generation=1, members=("n0",), master="127.0.0.1", port=5))
    seen = Observer(run).look(CONFIG, _job, 1.0)
    assert (seen.members, seen.port) == (("n0",), 5)
    write_control(run, Control(attempt=1, generation=2, phase=ControlPhase.PREPARE, members=("n1",)))
    assert Observer(run).look(CONFIG, _job, 1.0).members == ("n1",)


def test_claim_exits_resume_and_requests_are_seen(run) -> None:
    run.attempt(1).path.mkdir()
    claim_attempt(run, 1, Claim(job_id="42", restart=0))
    gone = WorkerExit(rank=1, node="n0", code=-9, ended_s=1.0, ordered=False, step=4, phase=Phase.FORWARD)
    write_exits(run, 1, 1, "n0", (gone,))
    create_json(run.attempt(1).resume(1), {"step": 0})
    write_request(run, Request(id="1-a", kind=RequestKind.PAUSE, by="me"))
    seen = Observer(run).look(CONFIG, _job, 1.0)
    assert seen.claim_job == "42"
    assert seen.exits == (gone,)
    assert seen.resume_step == 0
    assert seen.requests[0].kind is RequestKind.PAUSE
    assert not seen.problems


def test_the_newest_valid_checkpoint_of_the_lineage(run) -> None:
    observer = Observer(run)
    assert observer.look(CONFIG, _job, 1.0).checkpoint is None
    _checkpoint(run, 10)
    newest = _checkpoint(run, 20)
    run.checkpoint(30, 1, 1).mkdir()  # a save that did not finish
    assert observer.look(CONFIG, _job, 2.0).checkpoint.step == 20
    retire(newest)
    assert observer.look(CONFIG, _job, 3.0).checkpoint.step == 10
    _checkpoint(run, 15)
    run.attempt(1).path.mkdir()
    create_json(run.attempt(1).resume(2), {"step": 10})
    assert observer.look(CONFIG, _job, 4.0).checkpoint.step == 10  # generation 2 began before it: rolled back


def test_a_truncated_shard_does_not_count(run) -> None:
    _checkpoint(run, 10)
    (_checkpoint(run, 20) / "shard").write_bytes(b"1")
    assert Observer(run).look(CONFIG, _job, 1.0).checkpoint.step == 10


@pytest.mark.parametrize("name", ["control", "exit", "claim", "resume"])
def test_what_cannot_be_read_is_a_problem_and_nothing_else(run, beats, name: str) -> None:
    beats.write(_beat(1))
    place = run.attempt(1)
    paths = {
        "control": run.control,
        "exit": place.exit_record(1, "n0"),
        "claim": place.claim,
        "resume": place.resume(1),
    }
    paths[name].parent.mkdir(exist_ok=True)
    paths[name].write_text("{broken")
    seen = Observer(run).look(CONFIG, _job, 1.0)
    assert len(seen.problems) == 1
    assert paths[name].name in seen.problems[0]


def test_a_beat_that_cannot_be_opened_is_a_problem(run) -> None:
    run.attempt(1).beat("n0").mkdir(parents=True)
    seen = Observer(run).look(CONFIG, _job, 1.0)
    assert seen.problems
    assert seen.nodes[0].beat is None


def test_usual_times_are_kept_over_generations_and_attempts(run, beats) -> None:
    beats.write(_beat(1, usual={"forward": 0.5, "save": 3.0}))
    old = BeatFile(run.attempt(7).beat("n9"))
    old.write(_beat(9, usual={"load": 2.0}))
    old.close()
    observer = Observer(run)
    observer.look(CONFIG, _job, 1.0)
    beats.write(_beat(2, generation=2, usual={"forward": 0.2}))
    assert observer.look(CONFIG, _job, 2.0).usual == {"forward": 0.5, "save": 3.0, "load": 2.0}


def test_a_look_writes_nothing(run, beats) -> None:
    beats.write(_beat(1))
    before = sorted((path, path.stat().st_mtime_ns) for path in run.path.rglob("*"))
    Observer(run).look(CONFIG, _job, 1.0)
    assert sorted((path, path.stat().st_mtime_ns) for path in run.path.rglob("*")) == before


@pytest.mark.parametrize("mark", ["job.json", "claim", "exits/g0001-n0.json", "go-g0001.json"])
def test_the_highest_attempt_that_was_used_is_seen(run, mark: str) -> None:
    assert Observer(run).look(CONFIG, _job, 0.0).used == 0
    run.attempt(5).submission.mkdir(parents=True)  # nothing was handed in yet
    (run.attempt(3).path / mark).parent.mkdir(parents=True)
    (run.attempt(3).path / mark).touch()
    assert Observer(run).look(CONFIG, _job, 0.0).used == 3


def test_a_beat_counts_as_life_once_it_was_seen_to_move(run, beats) -> None:
    observer = Observer(run)
    beats.write(_beat(1))
    assert not observer.look(CONFIG, _job, 100.0).nodes[0].moved
    assert not observer.look(CONFIG, _job, 101.0).nodes[0].moved
    beats.write(_beat(2))
    assert observer.look(CONFIG, _job, 102.0).nodes[0].moved
    assert observer.look(CONFIG, _job, 110.0).nodes[0].moved  # for how long it is still tells the silence
    assert not observer.look(CONFIG, _job, 500.0).nodes[0].moved  # our own eyes were shut


def test_a_beat_that_comes_while_we_watch_is_alive(run, beats) -> None:
    observer = Observer(run)
    run.attempt(1).beat("n0").unlink()
    observer.look(CONFIG, _job, 100.0)
    file = BeatFile(run.attempt(1).beat("n0"))
    file.write(_beat(1))
    file.close()
    assert observer.look(CONFIG, _job, 101.0).nodes[0].moved


@pytest.mark.parametrize(("beat_s", "tick_s"), [(10.0, 1.0), (1.0, 10.0), (30.0, 10.0)])
def test_slow_beats_and_slow_looks_are_no_standstill_of_the_file_system(run, beats, beat_s, tick_s) -> None:
    """Watching began again at each beat then, and neither a hang nor a lost node was ever judged."""
    config = config_of(monitor={"beat_s": beat_s}, supervisor={"tick_s": tick_s})
    observer, now = Observer(run), 100.0
    watched = 0.0
    for sequence in range(1, 40):
        beats.write(_beat(sequence))
        for _ in range(round(max(beat_s, tick_s) / tick_s)):
            now += tick_s
            watched = observer.look(config, _job, now).watched_s
    assert watched == pytest.approx(now - 100.0 - tick_s)
    now += 4 * max(beat_s, tick_s)  # and a standstill still is one
    observer.look(config, _job, now - tick_s)
    beats.write(_beat(41))
    assert observer.look(config, _job, now).watched_s == 0.0


def test_what_a_program_saved_in_its_last_moment_counts_when_its_end_does(tmp_path) -> None:
    """A file is whole once it has not changed between two looks, or once nobody is left who writes."""
    settings, program = (
        Checkpoint(foreign_glob="saved.*", foreign_step=r"saved\.(\d+)"),
        ForeignProgram(tmp_path),
    )
    assert program.checkpoint(settings, (1, 1), written=False) is None
    (tmp_path / "saved.81").touch()
    assert program.checkpoint(settings, (1, 1), written=False) is None
    (tmp_path / "saved.82").touch()
    found = program.checkpoint(settings, (1, 1), written=True)
    assert found is not None
    assert found.step == 82
