"""A copier or a restore that is killed anywhere: no copy is lost, none is half, and the next one goes on."""

import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from contract import manifest
from contract.config import read_resolved
from contract.copies.fetch import examine
from contract.copies.store import Store
from contract.copies.target import Kind, open_store
from contract.layout import RunDir, checkpoint_name
from contract.manifest import Bounds, candidates
from supervisor.copies.copier import Clocks, Copier
from tests import crash
from tests.copies.gate import Gate, Moment
from tests.copies.killed import restore
from tests.copies.make import make_checkpoint, make_run
from tests.forks import Forks
from tests.storage import CREDENTIALS

SCRIPT = Path(__file__).with_name("killed.py")
CLOCKS = Clocks(utc=time.time, monotonic=time.monotonic, wait=time.sleep)
SIZES = (500, 600)
# What a store's requests go through runs in threads, which wake each other by writes: files' changes alone count then.
IN_ORDER, BESIDE_THREADS = {}, {"threads": False, "kinds": crash.CHANGES}


def copied(run: RunDir, kind: Kind) -> bool:
    """An undisturbed turn, in this process."""
    return Copier(run, kind, read_resolved(run.config), CLOCKS, lambda: None).turn(CREDENTIALS)


def store_of(run: RunDir, kind: Kind) -> Store:
    return open_store(read_resolved(run.config), kind, run.run_id, CREDENTIALS)


def due(place: Path, kind: Kind, endpoint: str = "") -> RunDir:
    """One copy is there, a second one is due, and with it the first must go."""
    run = make_run(place, kind, endpoint, keep_last=1)
    make_checkpoint(run, 10, sizes=SIZES)
    assert copied(run, kind)
    make_checkpoint(run, 20, sizes=SIZES)
    return run


def run_in(place: Path) -> RunDir:
    [found] = (place / "runs").iterdir()
    return RunDir(path=found)


def the_copies_are_sound(run: RunDir, kind: Kind) -> None:
    """Every copy that exists is right to the last byte, at least one does, and the next turn does all that is left."""
    store = store_of(run, kind)
    found = [examine(store, name, deep=True) for name in store.names() if store.manifest(name) is not None]
    assert found, "the only copy was lost"
    assert all(item.valid for item in found), found
    assert copied(run, kind)
    assert store.names() == [checkpoint_name(20, 1, 1)]
    assert examine(store, checkpoint_name(20, 1, 1), deep=True).valid


def turn_of(kind: Kind, prepare, **given) -> crash.Program:
    def arguments(place: Path) -> list[str]:
        return ["copy", str(run_in(place).path), kind.value, "1", "0"]

    return crash.Program(
        script=SCRIPT, prepare=prepare, arguments=arguments, environment=CREDENTIALS, **given
    )


@crash.needs_strace
def test_a_turn_that_is_killed_at_any_call_to_a_directory(tmp_path) -> None:
    number = 0
    for kill in turn_of(Kind.BACKUP, partial(due, kind=Kind.BACKUP)).every_kill(tmp_path):
        number += 1
        the_copies_are_sound(run_in(kill.place), Kind.BACKUP)
        shutil.rmtree(kill.place)
    assert number > 100


@crash.needs_strace
def test_a_turn_that_is_killed_at_any_call_of_its_own_to_a_store(tmp_path, endpoint) -> None:
    """Its own calls are those of the report and of reading; the requests are in the test below."""
    prepare = partial(due, kind=Kind.MIRROR, endpoint=endpoint)
    number = 0
    for kill in turn_of(Kind.MIRROR, prepare, **BESIDE_THREADS).every_kill(tmp_path):
        number += 1
        the_copies_are_sound(run_in(kill.place), Kind.MIRROR)
    assert number > 10


@pytest.fixture(scope="module")
def forks():
    with Forks(SCRIPT, CREDENTIALS) as found:
        yield found


def struck(forks: Forks, place: Path, endpoint: str, number: int, moment: Moment, what: str) -> list:
    """A turn that dies at this request. Returns the requests that there were."""
    run = due(place, Kind.MIRROR, endpoint)
    with Gate(target=endpoint, number=number, moment=moment) as gate:
        make_run(place, Kind.MIRROR, gate.endpoint, keep_last=1)
        turn = forks.start(what, str(run.path), Kind.MIRROR.value, "1", "0")
        gate.strike = turn.kill
        code = turn.wait()
    assert code == (0 if number < 0 else -9), forks.errors()
    make_run(place, Kind.MIRROR, endpoint, keep_last=1)
    the_copies_are_sound(run, Kind.MIRROR)
    return gate.requests


def test_a_turn_that_is_killed_at_any_request_to_a_store(tmp_path, endpoint, forks) -> None:
    requests = struck(forks, tmp_path / "whole", endpoint, -1, Moment.UNHEARD, "copy-in-order")
    assert {"GET", "PUT", "DELETE"} == {method for method, _, _ in requests}
    for number, (_, _, size) in enumerate(requests):
        for moment in Moment if size else (Moment.UNHEARD, Moment.UNANSWERED):
            place = tmp_path / f"{number}-{moment.name}"
            struck(forks, place, endpoint, number, moment, "copy-in-order")


@pytest.mark.parametrize("number", [3, 4, 5])
def test_a_turn_with_several_requests_on_their_way(tmp_path, endpoint, forks, number) -> None:
    struck(forks, tmp_path / "place", endpoint, number, Moment.UNANSWERED, "copy")


def damaged(place: Path, kind: Kind, endpoint: str = "") -> RunDir:
    """The newest checkpoint lacks one shard here and another is spoiled; its copy is right."""
    run = make_run(place, kind, endpoint)
    make_checkpoint(run, 10, sizes=SIZES)
    directory = make_checkpoint(run, 20, sizes=SIZES)
    assert copied(run, kind)
    (directory / "rank-0.pt").unlink()
    (directory / "sub" / "rank-1.pt").write_bytes(bytes(SIZES[1]))
    return run


@crash.needs_strace
@pytest.mark.parametrize("kind", list(Kind))
def test_a_restore_that_is_killed_at_any_call(tmp_path, request, kind) -> None:
    endpoint = request.getfixturevalue("endpoint") if kind is Kind.MIRROR else ""
    name = checkpoint_name(20, 1, 1)
    whole = make_run(tmp_path / "whole", kind, endpoint)
    wanted = make_checkpoint(whole, 20, sizes=SIZES)
    (tmp_path / "kills").mkdir()
    program = crash.Program(
        script=SCRIPT,
        prepare=partial(damaged, kind=kind, endpoint=endpoint),
        arguments=lambda place: ["restore", str(run_in(place).path), kind.value, name],
        environment=CREDENTIALS,
        **(IN_ORDER if kind is Kind.BACKUP else BESIDE_THREADS),
    )
    back = set()
    for kill in program.every_kill(tmp_path / "kills"):
        run = run_in(kill.place)
        newest = next(candidates(run, before=(1, 2), bounds=Bounds(), deep=True, skipped=lambda _: None))
        back.add(newest.step)
        assert restore(run, kind, name, CREDENTIALS), kill
        found = run.checkpoint(20, 1, 1)
        assert manifest.examine(found, deep=True).valid, kill
        for shard in ("rank-0.pt", "sub/rank-1.pt"):
            assert (found / shard).read_bytes() == (wanted / shard).read_bytes(), kill
    assert back == {10, 20}
