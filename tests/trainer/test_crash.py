"""Killed at every system call of a save and of a removal: what counts afterwards is whole."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from contract.layout import RunDir, checkpoint_name
from contract.manifest import Bounds, candidates, directories, examine
from tests import crash
from tests.trainer.killed_publisher import KEPT, content, save
from trainer.publish import prune

pytestmark = crash.needs_strace


def publisher(what: str, prepare: Callable[[Path], object]) -> crash.Program:
    script = Path(__file__).with_name("killed_publisher.py")
    return crash.Program(script=script, prepare=prepare, arguments=lambda place: [what, str(place)])


def two_saves(place: Path) -> None:
    run = RunDir(path=place)
    run.checkpoints.mkdir()
    save(run, 1)
    save(run, 2)


def eight_saves(place: Path) -> None:
    """1 to 8, of which 4 is half-written, and 2 has the best loss."""
    run = RunDir(path=place)
    run.checkpoints.mkdir(parents=True)
    for step in range(1, 9):
        if step == 4:
            (run.checkpoints / checkpoint_name(step, 1, 1)).mkdir()
            (run.checkpoints / checkpoint_name(step, 1, 1) / "rank-00000.pt").write_bytes(b"half")
        else:
            save(run, step, val_loss=0.5 if step == 2 else 1.0)


def loads(run: RunDir) -> list[int]:
    """Steps that a resume would take, newest first, each with its content proven."""
    found = list(candidates(run, before=(1, 2), bounds=Bounds(), deep=True, skipped=lambda _: None))
    for item in found:
        for shard in item.manifest.shards if item.manifest else ():
            assert (item.path / shard.path).read_bytes() == content(item.step)
    return [item.step for item in found]


def test_killed_anywhere_in_a_save_it_is_complete_or_does_not_count(tmp_path: Path) -> None:
    results = []
    for kill in publisher("save", two_saves).every_kill(tmp_path):
        run = RunDir(path=kill.place)
        assert loads(run) in ([2, 1], [3, 2, 1]), kill
        results.append(loads(run)[0])
        again = RunDir(path=kill.place)
        save_again(again)
        assert loads(again)[0] == 4, kill  # what is left over is in nobody's way
    assert len(results) > 20
    assert results == sorted(results), "once it counts, it counts"
    assert set(results) == {2, 3}


def save_again(run: RunDir) -> None:
    save(run, 4)
    prune(run, KEPT, at=(1, 1))


def test_killed_anywhere_in_a_removal_what_is_kept_is_whole(tmp_path: Path) -> None:
    kept = {8, 7, 5, 2}  # the last two, one for ever, the best
    eight_saves(tmp_path / "as-it-was")
    copy = partial(shutil.copytree, tmp_path / "as-it-was", dirs_exist_ok=True)
    number = 0
    for kill in publisher("prune", copy).every_kill(tmp_path):
        number += 1
        run = RunDir(path=kill.place)
        left = loads(run)
        assert kept <= set(left), kill
        for item in (examine(directory, deep=True) for directory in directories(run)):
            # Half a removal must not look like damage: whatever has a manifest is whole.
            assert item.valid or item.manifest is None, (kill, item.reason)
        prune(run, KEPT, at=(1, 1))
        assert set(loads(run)) == kept, kill
        assert len(directories(run)) == len(kept), kill
    assert number > 40


def test_everything_is_on_disk_before_the_manifest_has_its_name(tmp_path: Path) -> None:
    """A kill loses nothing that was written; a power failure does. So the order of the calls is proven too."""
    calls = publisher("save", two_saves).calls(tmp_path)
    kinds = [call.partition("(")[0] for call in calls]
    renamed = next(number for number, kind in enumerate(kinds) if kind.startswith("rename"))
    dirty = 0
    for number, kind in enumerate(kinds):
        dirty += kind in {"write", "mkdir"} or "O_CREAT" in calls[number]
        if kind == "fsync":
            dirty = 0
        if number == renamed:
            assert dirty == 0, calls
    assert "fsync" in kinds[renamed:], "the manifest's own name"
    files = [call for call in calls if "O_CREAT" in call]
    assert len(files) == 3
    assert (
        kinds[:renamed].count("fsync") == 2 * 2 + 1 + 1
    )  # each shard and its name, all directories, the manifest
