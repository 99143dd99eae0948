"""The copier as the supervisor starts it: a process, one turn, a report; killed anywhere, it harms nothing."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from contract.config import dump, read_resolved
from contract.copies.fetch import examine
from contract.copies.folder import FolderStore
from contract.copies.report import lock_path, read_report
from contract.copies.store import Trouble
from contract.copies.target import Kind, open_store
from contract.files import FileLock
from contract.layout import Root, RunDir
from tests.copies.make import make_checkpoint
from tests.storage import CREDENTIALS, DOMAIN, Fault, find_secrets
from tests.supervisor.conftest import config_of, wait_for

MIRROR = {"metadata": {"labels": {"ciuic.io/checkpoint-path": "s3://bucket/deepseek"}}}
WRITING = "pwrite64,write,fsync,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,ftruncate,link,linkat"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return new_run(tmp_path)


def new_run(folder: Path, **sections) -> RunDir:
    root = Root(path=folder / "runs")
    found = root.run(f"t-{os.getpid()}-{abs(hash(folder)) % 10**9}")
    found.checkpoints.mkdir(parents=True)
    write_config(found, backup={"directory": str(folder / "backup")}, **sections)
    (folder / "backup").mkdir()
    return found


def write_config(run: RunDir, **sections) -> None:
    run.config.write_text(dump(config_of(**MIRROR, **sections)))


def command(run: RunDir, kind: Kind, epoch: int = 1) -> list[str]:
    return [sys.executable, "-P", "-m", "supervisor.copies", str(run.path), kind, str(epoch), "0"]


def turn(run: RunDir, kind: Kind = Kind.BACKUP, *, epoch: int = 1, before=(), **environment: str):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [*before, *command(run, kind, epoch)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_turn_to_each_place(run, endpoint) -> None:
    write_config(
        run,
        backup={"directory": str(run.path.parents[1] / "backup")},
        mirror={"endpoint": endpoint, "keep_last": 1},
    )
    for step in (10, 20):
        make_checkpoint(run, step)
        for kind in Kind:
            done = turn(run, kind, **CREDENTIALS)
            assert (done.returncode, done.stderr) == (0, "")
            report = read_report(run, kind)
            assert report.newest == (step, 1, 1)
            assert report.behind_since == 0.0
            assert report.was_behind_since > 0
            assert report.trouble is None
    listed = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "ciuic", "checkpoints", run.run_id, "--verify", "--json"),
            *("--root", str(run.path.parent)),
        ],
        env=os.environ | CREDENTIALS,
        capture_output=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    rows = json.loads(listed.stdout)["checkpoints"]
    assert [(row["where"], row["step"], row["valid"]) for row in rows] == [
        ("local", 20, True),
        ("local", 10, True),
        ("backup", 20, True),
        ("backup", 10, True),
        ("mirror", 20, True),
    ]
    assert not find_secrets(run.path.parents[1])


def test_a_bucket_that_is_a_host(run, endpoint) -> None:
    """The style of OSS and COS. No name server knows the host: the store itself stands in as the proxy."""
    write_config(
        run, mirror={"endpoint": f"http://{DOMAIN}", "style": "virtual-host", "region": "cn-hangzhou"}
    )
    directory = make_checkpoint(run, 10)
    done = turn(run, Kind.MIRROR, **CREDENTIALS, http_proxy=endpoint)
    assert (done.returncode, done.stderr) == (0, ""), read_report(run, Kind.MIRROR)
    write_config(run, mirror={"endpoint": endpoint, "region": "cn-hangzhou"})
    store = open_store(read_resolved(run.config), Kind.MIRROR, run.run_id, CREDENTIALS)
    assert examine(store, directory.name, deep=True).valid


@pytest.mark.parametrize(
    ("fault", "troubles"),
    [
        (Fault(kind="refuse"), {Trouble.UNREACHABLE, Trouble.CUT}),
        (Fault(kind="silent"), {Trouble.TIMEOUT}),
    ],
    ids=["refuse", "silent"],
)
def test_a_failure_is_reported_with_its_cause_and_made_good(run, proxy, fault, troubles) -> None:
    write_config(run, mirror={"endpoint": proxy.endpoint, "request_timeout_s": 1.0})
    make_checkpoint(run, 10)
    proxy.become(fault)
    for tries in (1, 2):
        assert turn(run, Kind.MIRROR, **CREDENTIALS).returncode == 1
        report = read_report(run, Kind.MIRROR)
        assert report.trouble in troubles
        assert report.tries == tries
    since = report.behind_since
    proxy.become(Fault())
    assert turn(run, Kind.MIRROR, **CREDENTIALS).returncode == 0
    report = read_report(run, Kind.MIRROR)
    assert (report.trouble, report.tries, report.was_behind_since) == (None, 0, since)


def test_a_refused_key_is_told_without_the_key(run, endpoint, tmp_path) -> None:
    write_config(run, mirror={"endpoint": endpoint})
    make_checkpoint(run, 10)
    wrong = {**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": "not-the-secret-1234"}
    done = turn(run, Kind.MIRROR, **wrong)
    assert done.returncode == 1
    assert read_report(run, Kind.MIRROR).trouble is Trouble.REFUSED
    assert not find_secrets(tmp_path)
    assert "not-the-secret-1234" not in done.stderr + run.copies.joinpath("mirror.json").read_text()


def test_only_one_at_a_time_and_none_of_an_older_epoch(run) -> None:
    make_checkpoint(run, 10)
    run.copies.mkdir()
    lock = FileLock(lock_path(run, Kind.BACKUP))
    assert lock.acquire()
    assert turn(run).returncode == 75
    lock.release()
    place = Root(path=run.path.parent).supervisor(os.getuid())
    place.path.mkdir(parents=True)
    place.epoch(2).touch()
    assert turn(run, epoch=1).returncode == 75
    assert read_report(run, Kind.BACKUP) is None
    assert turn(run, epoch=2).returncode == 0


def test_a_full_place_is_named(run, tmp_path) -> None:
    make_checkpoint(run, 10, sizes=(3 << 20,))
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        write_config(run, backup={"directory": str(place)})
        assert turn(run).returncode == 1
        assert read_report(run, Kind.BACKUP).trouble is Trouble.FULL
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_killed_while_it_sends_to_the_store(run, endpoint) -> None:
    write_config(run, mirror={"endpoint": endpoint, "bandwidth_mb_s": 0.05})
    directory = make_checkpoint(run, 10, sizes=(5000,) * 12)
    store = open_store(read_resolved(run.config), Kind.MIRROR, run.run_id, CREDENTIALS)
    for wanted in (1, 4, 7, 11):
        process = subprocess.Popen(command(run, Kind.MIRROR), env=os.environ | CREDENTIALS)
        wait_for(lambda wanted=wanted: len(store.held(directory.name).objects) >= wanted)
        process.kill()
        process.wait()
        assert store.manifest(directory.name) is None
    assert turn(run, Kind.MIRROR, **CREDENTIALS).returncode == 0
    assert examine(store, directory.name, deep=True).valid


def _prepared(folder: Path) -> RunDir:
    """One copy is there, a second one is due, and with it the first must go."""
    run = new_run(folder)
    write_config(run, backup={"directory": str(folder / "backup"), "keep_last": 1})
    make_checkpoint(run, 10, sizes=(500, 600))
    assert turn(run).returncode == 0
    make_checkpoint(run, 20, sizes=(500, 600))
    return run


def _sound(run: RunDir, folder: Path) -> list[int]:
    """Steps of complete copies, each of which must be right to the last byte."""
    store = FolderStore(folder / "backup", run.run_id)
    complete = [name for name in store.names() if store.manifest(name) is not None]
    found = [examine(store, name, deep=True) for name in complete]
    assert all(item.valid for item in found), found
    return sorted(item.step for item in found)


def _calls(folder: Path) -> dict[str, int]:
    """System call that writes → how often a turn makes it."""
    run = _prepared(folder)
    trace = folder / "trace"
    assert turn(run, before=("strace", "-qq", "-e", f"trace={WRITING}", "-o", str(trace))).returncode == 0
    return Counter(line.partition("(")[0] for line in trace.read_text().splitlines() if "(" in line)


def kill_at(folder: Path, call: str, number: int) -> bool:
    """Kill a turn as it makes this call for the n-th time, then let another turn go on. False: it has fewer."""
    folder.mkdir()
    run = _prepared(folder)
    inject = ("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
    done = turn(run, before=("strace", "-qq", *inject, "-o", "/dev/null"))
    assert _sound(run, folder), "the only copy was lost"
    after = turn(run)
    assert after.returncode == 0, after.stderr
    assert _sound(run, folder) == [20]
    assert read_report(run, Kind.BACKUP).newest == (20, 1, 1)
    return done.returncode != 0


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_killed_at_some_calls_the_copies_stay_right(tmp_path) -> None:
    (tmp_path / "all").mkdir()
    found = _calls(tmp_path / "all")
    points = [(call, number) for call, times in sorted(found.items()) for number in range(1, times + 1)]
    assert len(points) > 30
    for call, number in points[:: len(points) // 5]:
        assert kill_at(tmp_path / f"{call}-{number}", call, number), (call, number)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_killed_at_every_call_the_copies_stay_right(tmp_path) -> None:
    (tmp_path / "all").mkdir()
    for call, times in _calls(tmp_path / "all").items():
        for number in range(1, times + 1):
            assert kill_at(tmp_path / f"{call}-{number}", call, number), (call, number)
