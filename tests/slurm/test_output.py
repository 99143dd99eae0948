"""The merged log: lines from bytes, whatever the workers write."""

import os

import pytest

from slurm.agent.output import KEPT_LINES, LONGEST_LINE, LineSplitter, NodeLog, WorkerOutput


@pytest.mark.parametrize(
    ("pieces", "lines", "rest"),
    [
        ([b"one\ntwo\n"], ["one", "two"], ""),
        ([b"on", b"e\ntw", b"o"], ["one"], "two"),
        ([b"windows\r\nend\r\n"], ["windows", "end"], ""),
        ([b"\r 1%", b"\r 50%", b"\r100%\n"], ["100%"], ""),
        ([b" 1%\r", b" 50%\r", b"done\n"], ["done"], ""),
        ([b" 1%\r", b" 50%\r"], [], " 50%"),
        ([b"\xe4\xb8", b"\xad\n"], ["中"], ""),
        ([b"\xff\xfe ok\n"], ["\ufffd\ufffd ok"], ""),
        ([b"\n\n"], ["", ""], ""),
        ([b"a\0b\n"], ["a\ufffdb"], ""),
        ([b""], [], ""),
    ],
)
def test_lines(pieces, lines, rest):
    splitter = LineSplitter()
    assert [line for piece in pieces for line in splitter.feed(piece)] == lines
    assert splitter.unfinished == rest
    assert splitter.finish() == ([rest] if rest else [])
    assert splitter.finish() == []


@pytest.mark.parametrize("chunk", [1 << 10, 1 << 16, 1 << 20])
def test_a_very_long_line_is_cut_once_and_the_next_is_whole(chunk):
    splitter = LineSplitter()
    data = b"x" * 300_000 + b"\nnext\n"
    lines = [
        line for start in range(0, len(data), chunk) for line in splitter.feed(data[start : start + chunk])
    ]
    assert lines == ["x" * LONGEST_LINE + " … (cut)", "next"]


def test_a_progress_bar_of_hours_does_not_grow():
    splitter = LineSplitter()
    for number in range(10_000):
        assert splitter.feed(b"\r%5d of many, and some more text" % number) == []
    assert splitter.unfinished == " 9999 of many, and some more text"
    assert len(splitter._rest) < 100


def test_the_log_names_time_generation_and_rank(tmp_path):
    log = NodeLog(tmp_path / "logs" / "n1.log")
    output = WorkerOutput(log, 2, 3)
    os.write(output.writer, b"hello\nlast words")
    log.add(2, None, "from the agent")
    output.drain()
    assert output.last_lines == ("hello", "last words")
    output.close_writer()
    output.drain()
    assert not output.open
    log.close()
    lines = (tmp_path / "logs" / "n1.log").read_text().splitlines()
    assert [line[24:] for line in lines] == [
        " g0002 r- | from the agent",
        " g0002 r3 | hello",
        " g0002 r3 | last words",
    ]
    assert lines[0][10] == "T"
    assert lines[0][23] == "Z"


def test_the_last_lines_are_few_and_short(tmp_path):
    log = NodeLog(tmp_path / "log")
    output = WorkerOutput(log, 1, 0)
    os.write(output.writer, b"".join(b"%d" % number + b"y" * 3000 + b"\n" for number in range(30)))
    output.drain()
    assert len(output.last_lines) == KEPT_LINES
    assert all(len(line) == 2000 for line in output.last_lines)
    output.close_writer()
    output.close()
    log.close()


def test_a_log_that_was_moved_away_is_begun_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("slurm.agent.output._LOOK_S", 0.0)
    path = tmp_path / "n1.log"
    log = NodeLog(path)
    log.add(1, 0, "first")
    log.flush()
    path.rename(tmp_path / "n1.log.1")
    log.add(1, 0, "second")
    log.close()
    texts = [(tmp_path / name).read_text().split("| ")[1:] for name in ("n1.log.1", "n1.log")]
    assert texts == [["first\n"], ["second\n"]]


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path):
    (tmp_path / "log").symlink_to("/dev/full")
    log = NodeLog(tmp_path / "log")
    log.add(1, 0, "lost")
    log.flush()
    assert log.dropped == 1
    log.close()
