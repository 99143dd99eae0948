"""Copies at a real object store and in a directory: made, compared, interrupted, spoiled, removed, brought back."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from contract import manifest
from contract.config.copies import Mirror
from contract.copies import store as port
from contract.copies.bucket import _without_answer
from contract.copies.fetch import examine, fetch
from contract.copies.folder import FolderStore
from contract.copies.pace import Pace
from contract.copies.s3 import S3Store
from contract.copies.store import Store, StoreError, Trouble
from contract.copies.stream import ahead
from contract.layout import RunDir
from contract.manifest import Bounds, candidates
from supervisor.copies.send import Sender, prune
from tests.copies.make import make_checkpoint
from tests.storage import CREDENTIALS, KEY, SECRET, Fault

NO_PACE = Pace(0.0, clock=time.monotonic, wait=time.sleep)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch) -> None:
    """Pieces of 16 KiB, so that a shard of 70 kB has five."""
    for module in ("contract.copies.store", "contract.copies.fetch"):
        monkeypatch.setattr(f"{module}.PIECE", 16 << 10)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(path=tmp_path / "runs" / f"t-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}")
    found.checkpoints.mkdir(parents=True)
    return found


def s3(run: RunDir, address: str, *, timeout: float = 5.0, environment=CREDENTIALS) -> S3Store:
    settings = Mirror(endpoint=address, request_timeout_s=timeout)
    return S3Store("bucket", "team/x", run.run_id, settings, environment)


@pytest.fixture(params=["s3", "folder"])
def place(request, run, tmp_path) -> Store:
    if request.param == "s3":
        return s3(run, request.getfixturevalue("endpoint"))
    (tmp_path / "backup").mkdir()
    return FolderStore(tmp_path / "backup", run.run_id)


def newest(run: RunDir):
    found = candidates(run, before=(99, 1), bounds=Bounds(), deep=False, skipped=lambda _: None)
    return next(found)


def send(run: RunDir, place: Store, *, guard=lambda: None, moved=lambda _: None) -> Sender:
    sender = Sender(store=place, pace=NO_PACE, guard=guard, moved=moved)
    sender.send(newest(run))
    return sender


def back(run: RunDir, name: str, place: Store, moved=lambda _: None):
    return fetch(run, name, place, moved=moved, pace=NO_PACE)


def test_there_and_back(run, place) -> None:
    directory = make_checkpoint(run, 10, sizes=(0, 70_000, 16 << 10, 5))
    before = {
        path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    assert send(run, place).sent == 1 + 5 + 1 + 1
    assert examine(place, directory.name, deep=True).valid
    shutil.rmtree(directory)
    found = back(run, directory.name, place)
    assert found.checkpoint.valid
    after = {
        path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    assert after == before
    assert send(run, place).sent == 0  # and it is known to be there


def test_only_what_is_wrong_comes_back(run, place) -> None:
    directory = make_checkpoint(run, 10)
    send(run, place)
    (directory / "rank-0.pt").write_bytes(b"x" * 3000)
    assert not manifest.examine(directory, deep=True).valid
    found = back(run, directory.name, place)
    assert (found.fetched, found.kept) == (1, 1)
    assert manifest.examine(directory, deep=True).valid


def test_an_interrupted_restore_changes_nothing_and_goes_on(run, place) -> None:
    directory = make_checkpoint(run, 10, sizes=(70_000, 70_000))
    send(run, place)
    for name in ("rank-0.pt", "sub/rank-1.pt"):
        (directory / name).write_bytes(b"\0" * 70_000)
    before = (directory / manifest.NAME).read_bytes()
    through: list[int] = []

    def stop(size: int) -> None:
        through.append(size)
        if sum(through) > 2 * 70_000 + 70_000 + 16_384:  # both compared, the first fetched, the second begun
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back(run, directory.name, place, moved=stop)
    assert (directory / manifest.NAME).read_bytes() == before
    assert (directory / "rank-0.pt").read_bytes() == b"\0" * 70_000
    asked: list[int] = []
    reading = place.read
    place.read = lambda name, piece: asked.append(piece.size) or reading(name, piece)
    assert back(run, directory.name, place).checkpoint.valid
    assert sum(asked) == 70_000  # only the second was fetched again
    assert not list(directory.rglob(".*"))


def test_an_interrupted_copy_does_not_exist_and_goes_on(run, place) -> None:
    directory = make_checkpoint(run, 10, sizes=(100_000,))

    through: list[int] = []

    def stop(size: int) -> None:
        through.append(size)
        if len(through) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send(run, place, moved=stop)
    assert "no manifest" in examine(place, directory.name, deep=False).reason
    assert send(run, place).sent <= 7 - 3
    assert examine(place, directory.name, deep=True).valid


def test_a_damaged_checkpoint_here_never_becomes_a_copy(run, place) -> None:
    directory = make_checkpoint(run, 10)
    data = bytearray((directory / "sub/rank-1.pt").read_bytes())
    data[40_000] ^= 1
    (directory / "sub/rank-1.pt").write_bytes(data)
    with pytest.raises(StoreError) as caught:
        send(run, place)
    assert caught.value.trouble is Trouble.SOURCE
    assert "sub/rank-1.pt is damaged here" in str(caught.value)
    assert place.manifest(directory.name) is None


def test_retention_keeps_the_newest_that_count(run, place) -> None:
    for step in (10, 20, 30, 40):
        make_checkpoint(run, step)
        send(run, place)
    make_checkpoint(run, 50, sizes=(9, 9))
    place.write("step-000000045-a0001-g0001", next(port.pieces(newest(run).manifest.shards[0])), b"x" * 9)
    prune(place, keep=2, counts=lambda name: "40" not in name, guard=lambda: None)
    assert sorted(place.names()) == ["step-000000020-a0001-g0001", "step-000000030-a0001-g0001"]
    prune(place, keep=1, counts=lambda _: False, guard=lambda: None)  # nothing counts: nothing goes
    assert len(place.names()) == 2


def test_who_was_overtaken_neither_publishes_nor_removes(run, place) -> None:
    directory = make_checkpoint(run, 10)

    def overtaken() -> None:
        raise SystemExit(75)

    with pytest.raises(SystemExit):
        send(run, place, guard=overtaken)
    assert place.manifest(directory.name) is None
    send(run, place)
    make_checkpoint(run, 20)
    send(run, place)
    with pytest.raises(SystemExit):
        prune(place, keep=1, counts=lambda _: True, guard=overtaken)
    assert len(place.names()) == 2


def test_wrong_bytes_at_the_place_are_found_and_sent_again(run, place, tmp_path) -> None:
    directory = make_checkpoint(run, 10)
    send(run, place)
    shard = newest(run).manifest.shards[1]
    piece = list(port.pieces(shard))[-1]
    place.write(directory.name, piece, b"\0" * piece.size)
    assert "another checksum" in examine(place, directory.name, deep=True).reason
    shutil.rmtree(directory)
    with pytest.raises(StoreError) as caught:
        back(run, directory.name, place)
    assert caught.value.trouble is Trouble.CORRUPT
    assert not (directory / manifest.NAME).exists()


@pytest.mark.parametrize(
    ("fault", "troubles"),
    [
        (Fault(kind="refuse"), {Trouble.UNREACHABLE, Trouble.CUT}),
        (Fault(kind="silent"), {Trouble.TIMEOUT}),
        (Fault(kind="cut", after=9000), {Trouble.CUT}),
        (Fault(kind="cut", upstream=False, after=50), {Trouble.CUT}),
        (Fault(kind="flip", after=9000), {Trouble.CORRUPT, Trouble.REFUSED}),
    ],
    ids=["refuse", "silent", "cut", "cut-answer", "flip"],
)
def test_a_spoiled_connection_is_named_and_nothing_half_exists(run, endpoint, proxy, fault, troubles) -> None:
    directory = make_checkpoint(run, 10, sizes=(70_000,))
    through = s3(run, proxy.endpoint, timeout=1.0)
    proxy.become(fault)
    with pytest.raises(StoreError) as caught:
        send(run, through)
    assert caught.value.trouble in troubles, caught.value
    direct = s3(run, endpoint)
    assert direct.manifest(directory.name) is None
    proxy.become(Fault())
    send(run, through)
    assert examine(direct, directory.name, deep=True).valid


@pytest.mark.parametrize("kind", ["cut", "flip"])
def test_an_answer_that_is_spoiled_once_costs_a_try(run, endpoint, proxy, kind) -> None:
    directory = make_checkpoint(run, 10, sizes=(70_000,))
    send(run, s3(run, endpoint))
    shutil.rmtree(directory)
    proxy.become(Fault(kind=kind, upstream=False, after=9000, times=1))
    assert back(run, directory.name, s3(run, proxy.endpoint)).checkpoint.valid
    assert proxy.spoiled == 1


def test_credentials_are_asked_for_and_never_told(run, endpoint) -> None:
    make_checkpoint(run, 10)
    with pytest.raises(StoreError) as caught:
        s3(run, endpoint, environment={})
    assert caught.value.trouble is Trouble.CREDENTIALS
    wrong = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET + "x"}
    for environment in (wrong, {**wrong, "AWS_ACCESS_KEY_ID": "NOBODYKNOWS1234567"}):
        with pytest.raises(StoreError) as caught:
            send(run, s3(run, endpoint, environment=environment))
        assert caught.value.trouble is Trouble.REFUSED
        assert "HTTP 403" in str(caught.value)
        assert all(value not in repr(caught.value) for value in environment.values())
        assert caught.value.__cause__ is None


def test_a_disk_that_is_not_mounted_is_not_written_under(run, tmp_path) -> None:
    make_checkpoint(run, 10)
    with pytest.raises(StoreError) as caught:
        send(run, FolderStore(tmp_path / "nowhere", run.run_id))
    assert caught.value.trouble is Trouble.MISSING
    assert not (tmp_path / "nowhere").exists()


def test_memory_holds_as_many_pieces_as_may_be_on_their_way() -> None:
    read = []

    def pieces():
        for number in range(50):
            read.append(number)
            yield number

    for done, (_, made) in enumerate(ahead(4, lambda number: number * 2, pieces())):
        assert made == 2 * done
        assert len(read) <= done + 1 + 4


def test_the_pace_holds_for_all_together() -> None:
    waited = []
    pace = Pace(1000.0, clock=lambda: 0.0, wait=waited.append)
    for _ in range(3):
        pace.take(500)
    assert waited == [0.5, 1.0]


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ("Generic S3 error: after 2 retries - HTTP error: error sending request", Trouble.UNREACHABLE),
        ("error sending request ... Kind: Timeout", Trouble.TIMEOUT),
        ("error sending request: connection reset by peer", Trouble.CUT),
        ("error sending request: dns error: failed to lookup address", Trouble.UNREACHABLE),
        ("something new", Trouble.UNKNOWN),
    ],
)
def test_what_the_library_says_when_no_answer_came(said, trouble) -> None:
    assert _without_answer(said)[0] is trouble
