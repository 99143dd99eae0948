"""One supervisor per user and root: lock, epoch and counter."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from contract import events as ev
from supervisor.adapters.leadership import OvertakenError, RefusedError, current_holder, read_holder, take
from supervisor.book import Book
from tests.supervisor.conftest import bare_run, wait_for

HOLD = """
import sys, time
from pathlib import Path
from contract.layout import Root
from supervisor.adapters.leadership import take
leadership = take(Root(path=Path(sys.argv[1])))
print(leadership.epoch, flush=True)
while True:
    leadership.beat()
    time.sleep(0.05)
"""


@pytest.fixture
def holder(root, processes):
    process = processes.start(
        [sys.executable, "-P", "-c", HOLD, str(root.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "1\n"
    return process


def test_a_second_one_is_refused_with_the_name_of_the_first(root, holder) -> None:
    with pytest.raises(RefusedError, match=f"pid {holder.pid} on {socket.gethostname()} since 20"):
        take(root)
    assert current_holder(root).pid == holder.pid


def test_a_command_is_waited_for_and_named_and_a_supervisor_is_not(root, holder) -> None:
    """`ciuic supervise` while somebody's `ciuic pause` does its work alone."""
    waits: list[float] = []
    with pytest.raises(RefusedError, match=f"already running: pid {holder.pid}"):
        take(root, patience_s=30.0, wait=waits.append)
    assert sum(waits) <= 1.0, "long enough for its name to be written"
    holder.kill()
    holder.wait()

    command, said = take(root, command="pause"), []
    assert str(current_holder(root) or "").startswith(f"`ciuic pause`, pid {os.getpid()}")
    with pytest.raises(RefusedError, match=r"in the hands of `ciuic pause`, pid \d+ on"):
        take(root)
    with pytest.raises(RefusedError, match="in the hands of `ciuic pause`"):
        take(root, patience_s=3.0, wait=waits.append)
    later = iter([lambda: None, lambda: None, command.release])
    leadership = take(root, patience_s=30.0, say=said.append, wait=lambda _: next(later)())
    assert said == [f"{root.path} is in the hands of {command.holder}; waits for its end"]
    assert leadership.holder.command == ""
    leadership.release()


def test_a_lock_file_of_the_version_before_is_understood(root) -> None:
    leadership = take(root)
    place = root.supervisor(os.getuid())
    value = json.loads(place.lock.read_text())
    assert value.pop("command") == ""
    place.lock.write_text(json.dumps(value))
    assert leadership.holds()
    del value["pid"]
    place.lock.write_text(json.dumps(value))
    assert read_holder(place.lock) is None
    leadership.release()


def test_after_a_kill_the_next_takes_over_at_once(root, holder) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert current_holder(root) is None
    leadership = take(root, wait=lambda _: pytest.fail("nothing to wait for"))
    assert leadership.epoch == 2
    leadership.release()


def _from_elsewhere(root) -> None:
    """As if the former holder ran on another host: another boot, and a lock that does not reach here."""
    place = root.supervisor(os.getuid())
    take(root).release()
    value = json.loads(place.lock.read_text())
    place.lock.write_text(json.dumps({**value, "host": "other", "boot": "other"}))


def test_a_holder_elsewhere_that_moves_is_left_alone_until_told(root) -> None:
    _from_elsewhere(root)
    beat = root.supervisor(os.getuid()).beat
    beat.write_text("1\n")
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        beat.write_text(f"{len(waits) // 3}\n")

    with pytest.raises(RefusedError, match="--takeover"):
        take(root, wait=wait)
    leadership = take(root, takeover=True, wait=wait)
    assert leadership.epoch == 2
    leadership.release()


def test_a_holder_elsewhere_that_stands_still_is_overtaken_after_our_own_60_s(root) -> None:
    _from_elsewhere(root)
    root.supervisor(os.getuid()).beat.write_text("7\n")
    waits = []
    leadership = take(root, wait=waits.append)
    assert sum(waits) == pytest.approx(60)
    assert leadership.epoch == 2
    leadership.release()


def test_a_clean_end_elsewhere_needs_no_wait(root) -> None:
    _from_elsewhere(root)
    leadership = take(root, wait=lambda _: pytest.fail("nothing to wait for"))
    leadership.release()


def test_an_overtaken_one_writes_nothing(root) -> None:
    run = bare_run(root)
    old = take(root)
    book = Book(run, clock=lambda: 1.0, epoch=old.epoch, guard=old.check)
    book.append(ev.SupervisorStarted(host="a", pid=1, version=""))
    before = run.journal.read_bytes()
    old._lock.release()  # as a flock that does not reach the other host
    new = take(root)
    with pytest.raises(OvertakenError, match="epoch 1 was overtaken"):
        book.append(ev.StateChanged(state="failed", reason=""))
    assert run.journal.read_bytes() == before
    assert not old.holds()
    old.release()
    assert new.holds()
    assert root.supervisor(os.getuid()).beat.exists()  # the old one's end does not speak for the new one
    new.release()


def test_one_that_is_stopped_still_holds_the_lock_here(root, holder) -> None:
    holder.send_signal(signal.SIGSTOP)
    with pytest.raises(RefusedError):
        take(root)
    holder.send_signal(signal.SIGCONT)
    beat = root.supervisor(os.getuid()).beat
    first = beat.read_bytes()
    wait_for(lambda: beat.read_bytes() != first)


def test_the_lock_file_names_the_holder(root) -> None:
    leadership = take(root)
    holder = read_holder(root.supervisor(os.getuid()).lock)
    assert (holder.pid, holder.epoch, holder.host) == (os.getpid(), 1, socket.gethostname())
    leadership.release()
