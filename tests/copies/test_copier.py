"""The copier as the supervisor starts it: a process, one turn, a report; killed anywhere, it harms nothing."""

import errno
import os
import subprocess
import sys
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
from tests import crash
from tests.copies.make import BUCKET, make_checkpoint
from tests.forks import Forks
from tests.storage import CREDENTIALS, DOMAIN, Fault, find_secrets
from tests.supervisor.conftest import config_of
from tests.supervisor.schemas import check

SCRIPT = Path(__file__).with_name("killed.py")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    root = Root(path=tmp_path / "runs")
    found = root.run(f"t-{os.getpid()}-{abs(hash(tmp_path)) % 10**9}")
    found.checkpoints.mkdir(parents=True)
    write_config(found, backup={"directory": str(tmp_path / "backup")})
    (tmp_path / "backup").mkdir()
    return found


def write_config(run: RunDir, **sections) -> None:
    run.config.write_text(dump(config_of(metadata=BUCKET, **sections)))


@pytest.fixture(scope="module")
def forks():
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        with Forks(SCRIPT) as found:
            yield found


@pytest.fixture
def turn(forks):
    """One turn, as the supervisor starts it; returns the exit code."""

    def take(run: RunDir, kind: Kind = Kind.BACKUP, *, epoch: int = 1, **environment: str) -> int:
        arguments = ("copy", str(run.path), kind.value, str(epoch), "0")
        return forks.start(*arguments, environment=environment).wait()

    return take


def test_one_turn_to_each_place(run, endpoint) -> None:
    write_config(
        run,
        backup={"directory": str(run.path.parents[1] / "backup")},
        mirror={"endpoint": endpoint, "keep_last": 1},
    )
    for step in (10, 20):
        make_checkpoint(run, step)
        for kind in Kind:
            command = [sys.executable, "-P", "-m", "supervisor.copies", str(run.path), kind, "1", "0"]
            done = subprocess.run(
                command, env=os.environ | CREDENTIALS, capture_output=True, timeout=120, check=False
            )
            assert (done.returncode, done.stderr) == (0, b"")
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
    rows = check("checkpoints", listed.stdout.decode())["checkpoints"]
    assert [(row["where"], row["step"], row["valid"]) for row in rows] == [
        ("local", 20, True),
        ("local", 10, True),
        ("backup", 20, True),
        ("backup", 10, True),
        ("mirror", 20, True),
    ]
    assert all(0 <= row["age_s"] < 300 and row["bytes"] == 73_000 for row in rows), rows
    assert not find_secrets(run.path.parents[1])


def test_a_bucket_that_is_a_host(run, turn, endpoint) -> None:
    """The style of OSS and COS. No name server knows the host: the store itself stands in as the proxy."""
    write_config(
        run, mirror={"endpoint": f"http://{DOMAIN}", "style": "virtual-host", "region": "cn-hangzhou"}
    )
    directory = make_checkpoint(run, 10)
    done = turn(run, Kind.MIRROR, **CREDENTIALS, http_proxy=endpoint)
    assert done == 0, read_report(run, Kind.MIRROR)
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
def test_a_failure_is_reported_with_its_cause_and_made_good(run, turn, proxy, fault, troubles) -> None:
    write_config(run, mirror={"endpoint": proxy.endpoint, "request_timeout_s": 1.0})
    make_checkpoint(run, 10)
    proxy.become(fault)
    for tries in (1, 2):
        assert turn(run, Kind.MIRROR, **CREDENTIALS) == 1
        report = read_report(run, Kind.MIRROR)
        assert report.trouble in troubles
        assert report.tries == tries
    since = report.behind_since
    proxy.become(Fault())
    assert turn(run, Kind.MIRROR, **CREDENTIALS) == 0
    report = read_report(run, Kind.MIRROR)
    assert (report.trouble, report.tries, report.was_behind_since) == (None, 0, since)


def test_a_refused_key_is_told_without_the_key(run, turn, forks, endpoint, tmp_path) -> None:
    write_config(run, mirror={"endpoint": endpoint})
    make_checkpoint(run, 10)
    wrong = {**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": "not-the-secret-1234"}
    assert turn(run, Kind.MIRROR, **wrong) == 1
    assert read_report(run, Kind.MIRROR).trouble is Trouble.REFUSED
    assert not find_secrets(tmp_path)
    assert "not-the-secret-1234" not in forks.errors() + run.copies.joinpath("mirror.json").read_text()


def test_only_one_at_a_time_and_none_of_an_older_epoch(run, turn) -> None:
    make_checkpoint(run, 10)
    run.copies.mkdir()
    lock = FileLock(lock_path(run, Kind.BACKUP))
    assert lock.acquire()
    assert turn(run) == 75
    lock.release()
    place = Root(path=run.path.parent).supervisor(os.getuid())
    place.path.mkdir(parents=True)
    place.epoch(2).touch()
    assert turn(run, epoch=1) == 75
    assert read_report(run, Kind.BACKUP) is None
    assert turn(run, epoch=2) == 0


def test_a_disk_that_is_full_read_only_or_gone_is_named_and_nothing_is_lost(run, turn, tmp_path) -> None:
    place, kept = tmp_path / "small", tmp_path / "kept"
    for directory in (place, kept):
        directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    write_config(run, backup={"directory": str(place), "keep_last": 1})

    def fails_by(trouble: Trouble) -> str:
        assert turn(run) == 1
        report = read_report(run, Kind.BACKUP)
        assert report.trouble is trouble
        assert report.newest == (10, 1, 1)
        return report.text

    def mount(*options: str) -> None:
        subprocess.run(["mount", *options], check=True)

    try:
        make_checkpoint(run, 10, sizes=(100_000,))
        assert turn(run) == 0
        make_checkpoint(run, 20, sizes=(3 << 20,))
        assert "No space left" in fails_by(Trouble.FULL)
        mount("-o", "remount,ro", str(place))
        assert "Read-only" in fails_by(Trouble.READ_ONLY)
        mount("-o", "remount,rw,size=16m", str(place))
        mount("--bind", str(place), str(kept))
        subprocess.run(["umount", str(place)], check=True)
        assert "is its disk mounted?" in fails_by(Trouble.MISSING)
        assert list(place.iterdir()) == [], "nothing is written under the mount point"
        store = FolderStore(kept, run.run_id)
        assert examine(store, "step-000000010-a0001-g0001", deep=True).valid
        mount("--bind", str(kept), str(place))
        assert turn(run) == 0
        assert store.names() == ["step-000000020-a0001-g0001"]
    finally:
        for directory in (place, kept):
            subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True)


@crash.needs_strace
@pytest.mark.parametrize(
    ("number", "trouble"), [("EDQUOT", Trouble.FULL), ("EACCES", Trouble.REFUSED), ("EIO", Trouble.UNKNOWN)]
)
def test_what_the_kernel_says_of_a_copy_is_told(run, forks, tmp_path, number, trouble) -> None:
    """As from a file system with a quota, or a failing disk: injected into the call before a shard's first byte."""
    make_checkpoint(run, 10)
    taken = forks.start("copy", str(run.path), Kind.BACKUP.value, "1", "0", stopped=True)
    calls = "ftruncate"  # the first is the lock's
    crash.trace(taken, tmp_path / "trace", f"trace={calls}", f"inject={calls}:error={number}:when=2+")
    assert taken.wait() == 1
    report = read_report(run, Kind.BACKUP)
    assert report.trouble is trouble
    assert os.strerror(getattr(errno, number)) in report.text
    assert FolderStore(tmp_path / "backup", run.run_id).manifest("step-000000010-a0001-g0001") is None
