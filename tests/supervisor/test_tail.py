"""Logs that grow, rotate, shrink, have holes, and whatever else happens to logs: no line lost, none twice, work bounded."""

import os

import pytest

from contract.layout import AttemptDir
from supervisor.adapters.log_reader import BYTES_AT_ONCE, LogReader
from supervisor.adapters.mounts import file_system_of, is_shared
from supervisor.adapters.tail import LONGEST_LINE, Tail
from supervisor.adapters.watcher import Watcher
from tests.supervisor.conftest import wait_for

MEGA = 1 << 20
OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "n1.log"


def add(path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_lines_come_once_and_whole(log) -> None:
    tail = Tail(log)
    assert tail.read(MEGA) == b""
    add(log, b"one\ntw")
    assert tail.read(MEGA) == b"one\n"
    assert tail.read(MEGA) == b""
    add(log, b"o\nthree\n")
    assert tail.read(MEGA) == b"two\nthree\n"
    assert not tail.changed()
    add(log, b"x")
    assert tail.changed()
    tail.read(MEGA)
    assert tail.finish() == b"x"


def test_a_renamed_log_is_read_to_its_end_first(log) -> None:
    tail = Tail(log)
    add(log, b"one\n")
    tail.read(MEGA)
    add(log, b"two\nhalf")
    log.rename(log.with_name("n1.log.1"))
    add(log, b"three\n")
    assert tail.read(MEGA) == b"two\nhalf\nthree\n"
    add(log, b"four\n")
    assert tail.read(MEGA) == b"four\n"


def test_a_log_that_was_cut_and_written_again_is_another_one(log) -> None:
    tail = Tail(log)
    add(log, b"one\ntwo\n")
    tail.read(MEGA)
    log.write_bytes(b"new\n")  # shorter, the same inode
    assert tail.read(MEGA) == b"new\n"
    log.write_bytes(b"fresh and longer than before\n")  # longer: only its head tells
    assert tail.read(MEGA) == b"fresh and longer than before\n"


def test_a_hole_of_gigabytes_costs_nothing(log) -> None:
    tail = Tail(log, whole=True)
    add(log, b"one\n")
    tail.read(MEGA)
    os.truncate(log, 8 << 30)
    add(log, b"two\n")
    got = b"".join(tail.read(MEGA) for _ in range(3))
    assert got.replace(b"\0", b"") == b"two\n"
    assert tail.bytes_read < MEGA


def test_a_line_without_end_is_handed_out_in_pieces(log) -> None:
    tail = Tail(log)
    add(log, b"0% \r" * MEGA)
    pieces = [tail.read(MEGA) for _ in range(6)]
    assert all(len(piece) <= MEGA + LONGEST_LINE + 1 for piece in pieces)
    assert all(piece.endswith(b"\n") for piece in pieces if piece)
    add(log, b"\nend\n")
    assert b"".join(tail.read(MEGA) for _ in range(4)).endswith(b"end\n")


def test_work_is_bounded_and_goes_on_where_it_was(log) -> None:
    tail = Tail(log)
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    add(log, lines)
    got, portion = b"", tail.read(10_000)
    while portion:
        assert len(portion) <= 10_000 + 100  # and what was half a line before
        got, portion = got + portion, tail.read(10_000)
    assert got == lines


def test_of_a_log_older_than_our_eyes_the_end_is_read(log) -> None:
    add(log, b"old\n" * MEGA + b"new\n")
    tail = Tail(log)
    assert tail.read(MEGA).endswith(b"new\n")
    assert tail.bytes_read < MEGA


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /data rw - nfs4 server:/x rw
31 22 0:41 / /data/local rw - xfs /dev/nvme0n1 rw
32 22 0:42 / /with\\040space rw - lustre x rw
33 22 0:43 / /over rw - ext4 /dev/sdb rw
34 33 0:44 / /over rw - fuse.sshfs x rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "shared"),
    [
        ("/home/x", "ext4", False),
        ("/data/runs", "nfs4", True),
        ("/datax", "ext4", False),
        ("/data/local/runs", "xfs", False),
        ("/with space/runs", "lustre", True),
        ("/over/runs", "fuse.sshfs", True),
    ],
)
def test_the_file_system_says_whether_events_are_enough(path, kind, shared) -> None:
    assert file_system_of(path, MOUNTS) == kind
    assert is_shared(kind) is shared


@pytest.mark.parametrize(
    "kind", ["nfs", "gpfs", "beegfs", "ceph", "fuse", "fuse.juicefs", "wekafs", "9p", ""]
)
def test_shared_kinds(kind) -> None:
    assert is_shared(kind)
    assert not any(is_shared(local) for local in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"))


@pytest.fixture
def watcher():
    made = Watcher()
    yield made
    made.close()


@pytest.fixture
def place(tmp_path):
    made = AttemptDir(path=tmp_path / "attempts" / "0001")
    made.logs.mkdir(parents=True)
    made.submission.mkdir()
    return made


def own(text: str, generation: int = 1, rank: int = 0) -> bytes:
    return f"2026-01-01T00:00:00.000Z g{generation:04d} r{rank} | {text}\n".encode()


def test_events_tell_of_a_line_on_a_local_file_system(place, watcher) -> None:
    watched = watcher.watch(place.logs)
    if watched is None:
        pytest.skip("the temporary folder lies on a shared file system")
    assert watched.changed()
    assert not watched.changed()
    add(place.log("n1"), b"x\n")
    wait_for(watched.changed)


class NoEvents(Watcher):
    """As on a network file system."""

    def watch(self, directory):
        del directory


def test_what_the_logs_say_by_polling(place) -> None:
    reader = LogReader(NoEvents())
    add(place.log("n1"), own("step 1: loss 2.0") + own("NCCL WARN Call to connect failed", rank=3))
    add(place.submission / "9_0_log.out", b"slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.\n")
    found = reader.look(place, 1, 100.0)
    assert [(line.entry, line.remark) for line in found] == [
        ("slurm-step-oom", False),
        ("nccl-warn-other", True),
    ]
    assert found[1].node == "n1"
    assert reader.look(place, 2, 101.0) == (), "they were said of the generation before"
    add(place.log("n2"), own("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", 2, 5))
    (line,) = reader.look(place, 2, 102.0)
    assert (line.entry, line.node, line.rank) == ("xid-off-the-bus", "n2", 5)


def test_what_the_logs_say_by_events(place, watcher) -> None:
    reader = LogReader(watcher)
    assert reader.look(place, 1, 100.0) == ()
    add(place.log("n1"), own("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."))
    wait_for(lambda: reader.look(place, 1, 101.0))


def test_a_tick_reads_what_is_new_and_never_more_than_its_share(place) -> None:
    """Counted in bytes: gigabytes that were read before, or grew while nobody looked, cost no tick anything."""
    reader = LogReader(NoEvents())
    chatter = b"".join(own(f"step {number}: loss 2.0") for number in range(20_000))
    for _ in range(20):
        add(place.log("n1"), chatter)
    reader.look(place, 1, 100.0)
    first = reader.bytes_read
    assert first < MEGA, "of an old log the end"
    for now in range(20):
        add(place.log("n1"), own("step 1: loss 2.0"))
        reader.look(place, 1, 101.0 + now)
    assert reader.bytes_read - first < 20 * 4096
    for _ in range(10):
        add(place.log("n1"), chatter)
    before = reader.bytes_read
    reader.look(place, 1, 200.0)
    assert reader.bytes_read - before <= BYTES_AT_ONCE + 4096


def test_a_pipe_in_the_place_of_a_log_does_not_stop_us(place) -> None:
    os.mkfifo(place.log("n1"))
    assert LogReader(NoEvents()).look(place, 1, 100.0) == ()
