"""Shared files: whole or not at all, exclusive when it says so, and the torn tail of a journal."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from contract import files
from contract.event_lines import decode, encode
from contract.events import AttemptSubmitted, Event, StateChanged
from contract.journal import Journal, JournalReader, JournalReplacedError


def test_replace_leaves_no_scratch_files(tmp_path: Path) -> None:
    target = tmp_path / "control.json"
    files.replace_json(target, {"a": 1})
    files.replace_json(target, {"a": 2})
    assert files.read_json(target) == {"a": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["control.json"]


def test_create_is_exclusive_and_keeps_the_first_content(tmp_path: Path) -> None:
    target = tmp_path / "claim"
    assert files.create_json(target, {"job": "1"})
    assert not files.create_json(target, {"job": "2"})
    assert files.read_json(target) == {"job": "1"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["claim"]


def _race(path: Path, number: int, results: "multiprocessing.Queue[int]") -> None:
    if files.create_json(path, {"winner": number}):
        results.put(number)


def test_of_many_creators_one_wins_and_readers_see_it_whole(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[int] = context.Queue()
    target = tmp_path / "claim"
    racers = [context.Process(target=_race, args=(target, number, results)) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)
    winner = results.get(timeout=5)
    assert results.empty()
    assert files.read_json(target) == {"winner": winner}


def test_unreadable_is_not_absent(tmp_path: Path) -> None:
    assert files.read_json(tmp_path / "nothing") is None
    (tmp_path / "bad").write_text("{")
    with pytest.raises(ValueError, match="bad: not JSON"):
        files.read_json(tmp_path / "bad")
    (tmp_path / "list").write_text("[]")
    with pytest.raises(ValueError, match="a JSON object was expected"):
        files.read_json(tmp_path / "list")


def test_lock_excludes_another_descriptor_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = files.FileLock(path), files.FileLock(path)
    assert not files.lock_is_held(path)
    assert first.acquire("host 1")
    assert files.lock_is_held(path)
    assert not second.acquire("host 2")
    assert path.read_text() == "host 1"
    first.release()
    assert second.acquire("host 2")
    second.release()


def _journal(path: Path, epoch: int = 1) -> Journal:
    return Journal(path, clock=lambda: 100.0, epoch=epoch)


def test_journal_continues_its_numbers_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = _journal(path)
    assert journal.replay() == []
    journal.append(StateChanged(state="running", reason="步骤 1"))
    journal.close()
    again = _journal(path, epoch=2)
    assert [event.seq for event in again.replay()] == [1]
    assert again.append(AttemptSubmitted(attempt=1, job_id="7")).seq == 2
    again.close()
    assert [event.epoch for event in JournalReader(path).new()] == [1, 2]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_is_dropped_on_read_and_cut_before_the_next_append(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal.jsonl"
    journal = _journal(path)
    journal.append(StateChanged(state="running", reason="one"))
    journal.append(StateChanged(state="running", reason="two"))
    journal.close()
    os.truncate(path, path.stat().st_size - cut)
    assert [event.body.reason for event in JournalReader(path).new()] == ["one"]  # type: ignore[attr-defined]
    again = _journal(path)
    again.replay()
    again.append(StateChanged(state="running", reason="three"))
    again.close()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(line["seq"], line["reason"]) for line in lines] == [(1, "one"), (2, "three")]


def test_reader_returns_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    reader = JournalReader(path)
    assert reader.new() == []
    journal = _journal(path)
    journal.append(StateChanged(state="running", reason="one"))
    assert len(reader.new()) == 1
    assert reader.new() == []
    journal.append(StateChanged(state="running", reason="two"))
    assert [event.seq for event in reader.new()] == [2]
    journal.close()


def test_a_broken_line_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    good = encode(Event(seq=1, time=1.0, epoch=0, body=StateChanged(state="running", reason="")))
    path.write_bytes(good + b"\0\0garbage\n" + b'{"kind": "from-the-future", "seq": 9}\n' + good)
    reader = JournalReader(path)
    assert len(reader.new()) == 2
    assert len(reader.problems) == 1


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    line = (
        b'{"v":1,"seq":1,"time":2.0,"epoch":0,"kind":"state-changed","state":"running","reason":"","new":[1]}'
    )
    event = decode(line)
    assert event is not None
    assert event.body == StateChanged(state="running", reason="")


@pytest.mark.parametrize("replaced", [True, False])
def test_a_journal_replaced_while_written_is_an_error(tmp_path: Path, replaced: bool) -> None:
    """What is appended to a file without a name is seen by nobody."""
    path = tmp_path / "journal.jsonl"
    journal = _journal(path)
    journal.append(StateChanged(state="running", reason=""))
    before = path.read_bytes()
    if replaced:  # as `sed -i` does
        (tmp_path / "new").write_bytes(before)
        (tmp_path / "new").rename(path)
    else:
        path.unlink()
    with pytest.raises(JournalReplacedError, match="replaced by another" if replaced else "was removed"):
        journal.append(StateChanged(state="failed", reason=""))
    journal.close()
    assert (path.read_bytes() if replaced else before) == before
