"""Files, archives, standard input, broken files, the command line; bounded memory; the order of events."""

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
import zipfile

import pytest
from typer import Typer
from typer.testing import CliRunner

from contract.language import language, spoken
from contract.layout import by_number
from contract.states import Cause
from supervisor.commands_diagnose import diagnose as command
from supervisor.diagnose.catalogue import load
from supervisor.diagnose.lines import clean, parse, pieces
from supervisor.diagnose.read import Problem, blocks, sources
from supervisor.diagnose.run import diagnose
from supervisor.diagnose.scan import gate_of, scan
from supervisor.diagnose.stamps import find_stamp
from tests.supervisor.schemas import check

OOM = "step 1 loss 2\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
APP = Typer()
APP.command()(command)


def _run(*arguments, **more):
    return CliRunner().invoke(APP, list(arguments), **more)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda data: data])
def test_packed(tmp_path, pack):
    path = tmp_path / "log"
    path.write_bytes(pack(OOM.encode()))
    facts = diagnose([str(path)]).diagnosis.json()
    assert (facts["class"], facts["suspect_rank"], facts["line"]) == ("gpu-oom", 3, 2)


def test_zip_and_directory(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"\0" * 100)
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("logs/rank_3.err", OOM)
    facts = diagnose([str(tmp_path)]).diagnosis.json()
    assert facts["file"] == f"{tmp_path / 'logs.zip'}:logs/rank_3.err"


def test_a_torn_gzip_gives_what_it_has(tmp_path):
    noise = "".join(f"{number * 7919 % 10007} is a number\n" for number in range(20000))
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress((OOM + noise).encode())[:-2000])
    assert diagnose([str(path)]).diagnosis.cause is Cause.GPU_OOM


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd123")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b\x08garbage")
    names = [str(tmp_path / name) for name in ("a.zst", "empty", "broken.gz", "missing")]
    outcome = diagnose(names)
    assert outcome.diagnosis is None
    assert {problem.name for problem in outcome.problems} == set(names)


def test_standard_input():
    outcome = diagnose(["-"], io.BytesIO(OOM.encode()))
    assert outcome.diagnosis.json()["file"] == "-"


def test_command(tmp_path):
    path = tmp_path / "log"
    path.write_text(OOM)
    result = _run(str(path), "--json")
    assert result.exit_code == 0
    assert check("diagnose", result.stdout)["line"]
    assert "怎么办" in _run(str(path), "--lang", "zh").stdout
    assert spoken() == language(), "a command's language ends with it"
    assert "What to do" in _run(str(path), "--lang", "en").stdout
    assert _run(str(tmp_path / "missing")).exit_code == 1
    assert _run().exit_code == 2
    assert _run("-", input=OOM).exit_code == 0


WATCHDOG = "[rank{}]:[E131 16:15:{}.7 ProcessGroupNCCL.cpp:616] [Rank {}] Watchdog caught collective operation timeout: "
WORK = (
    "WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1000) ran for 1001 milliseconds"
)


def timed_out(rank, second, work):
    return WATCHDOG.format(rank, second, rank) + WORK.format(work) + "\n"


def test_who_is_named_has_its_own_line_and_the_reason(tmp_path):
    path = tmp_path / "log"
    path.write_text(timed_out(0, 10, 42) + timed_out(1, 11, 41) + timed_out(2, 12, 42))
    english, chinese = _run(str(path), "--lang", "en").stdout, _run(str(path), "--lang", "zh").stdout
    assert f"Where: {path}:1" in english
    assert "Whom the others waited for: rank 1 (the number of its collective is the lowest)" in english
    [own] = [line for line in english.splitlines() if f"{path}:2" in line]
    assert "SeqNum=41" in own, "its line is shown, and not as a victim's"
    assert "First to fail" not in english
    assert "where all do, whose number (SeqNum) is the lowest" in english
    assert "rank 1（它的集合通信序号最小）" in chinese
    path.write_text(timed_out(0, 10, 42) + timed_out(2, 12, 42))
    english = _run(str(path), "--lang", "en").stdout
    assert "Whom the others waited for: rank 1 (the only one that reports no timeout)" in english
    assert f"{path}:2 |" not in english


def test_what_is_no_log_is_said_and_not_called_a_success(tmp_path):
    noise, folder = tmp_path / "noise", tmp_path / "folder"
    noise.write_bytes(random.Random(1).randbytes(20000))
    folder.mkdir()
    for name, en, zh in (
        (noise, "is no text", "不是文本"),
        (folder, "holds no file that may be a log", "目录里没有可当日志读的文件"),
        (tmp_path / "missing", "No such file or directory", "没有这个文件或目录"),
    ):
        english, chinese = _run(str(name), "--lang", "en"), _run(str(name), "--lang", "zh")
        assert (english.exit_code, chinese.exit_code) == (1, 1)
        assert (en in english.stderr, zh in chinese.stderr) == (True, True)
    (folder / "rank0.log").write_text(OOM)
    (folder / "shard").write_bytes(noise.read_bytes())
    found = _run(str(folder))
    assert (found.exit_code, found.stderr) == (0, ""), "beside logs a directory holds all sorts of things"


def test_a_log_in_another_encoding_or_with_holes_is_text(tmp_path):
    path = tmp_path / "log"
    for head in (b"\0" * 5000, "训练开始，读取数据\n".encode("gbk") * 50, b"\x1b[32mstep\x1b[0m 3\r\n" * 50):
        path.write_bytes(head + OOM.encode())
        assert diagnose([str(path)]).diagnosis.cause is Cause.GPU_OOM


def test_no_failure_in_words(tmp_path):
    path = tmp_path / "log"
    path.write_text("step 1 loss 2\ntraining finished\n")
    assert "No failure" in _run(str(path), "--lang", "en").stdout


def test_unexplained_has_the_last_lines(tmp_path):
    path = tmp_path / "log"
    path.write_text("step 1 loss 2\nthe flux is gone\nsrun: error: n1: task 3: Exited with exit code 9\n")
    facts = diagnose([str(path)]).diagnosis.json()
    assert facts["class"] == "unexplained"
    assert "the flux is gone" in facts["last_lines"]


def test_memory_is_bounded():
    def endless():
        line = (
            b'[rank1]: Traceback (most recent call last):\n  File "a"\nValueError: x '
            + b"y" * 900
            + b"\nstep %d loss nan error\n"
        )
        for number in range(8):
            yield b"".join(line % (number * 1000 + row) for row in range(400))

    catalogue = load()
    gate = gate_of(catalogue)
    tracemalloc.start()
    found = scan(endless(), "x", 0, catalogue, gate)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.events) < 300
    assert peak < 12 << 20


@pytest.mark.parametrize("size", [500_000, 9_000_000])
def test_a_line_of_megabytes(tmp_path, size):
    path = tmp_path / "log"
    path.write_bytes(
        b"step 1 loss 2\n"
        + b"x" * size
        + b" CUDA error: device-side assert triggered "
        + b"y" * size
        + b"\nsrun: error: n1: task 4: Exited with exit code 1\n"
    )
    facts = diagnose([str(path)]).diagnosis.json()
    assert (facts["cause"], facts["suspect_rank"], facts["line"]) == ("cuda-device-assert", 4, 2)


def test_blocks_end_with_lines():
    data = b"".join(b"line %d\n" % number for number in range(300_000)) + b"no end"
    found = list(blocks(io.BytesIO(data)))
    assert b"".join(found) == data
    assert all(block.endswith(b"\n") for block in found[:-1])


@pytest.mark.parametrize(
    ("text", "rank", "local", "node", "message"),
    [
        ("[rank3]: x", 3, None, "", "x"),
        ("[default2]:x", None, 2, "", "x"),
        (" 12: x", 12, None, "", "x"),
        ("[1,7]<stderr>:x", 7, None, "", "x"),
        ("worker-1: [rank5]: x", 5, None, "worker-1", "x"),
        ("10.0.0.3: x", None, None, "10.0.0.3", "x"),
        ("2026-11-30T13:39:00.736Z g0002 r4 | x", 4, None, "", "x"),
        ("n1: 2026-11-30T13:39:00.736Z g0002 r- | x", None, None, "n1", "x"),
        ("\x1b[31m[rank1]:\x1b[0m x", 1, None, "", "x"),
        ("INFO rank 9: x", 9, None, "", "INFO rank 9: x"),
    ],
)
def test_prefixes(text, rank, local, node, message):
    line = parse(clean(text.encode()))
    assert (line.rank, line.local, line.node, line.message) == (rank, local, node, message)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("[2024-05-01 12:00:00,1] [WARNING] [x.py] y", "WARNING"),
        ("[rank1]:[W501 12:00:00.1 socket.cpp:464] y", "WARNING"),
        ("[E ProcessGroupNCCL.cpp:737] y", "ERROR"),
        ("n1:1:2 [0] NCCL WARN y", ""),
        ("UserWarning: y", "WARNING"),
        ("y", ""),
    ],
)
def test_levels(text, level):
    assert parse(text).level == level


def test_stamps():
    forms = (
        "2024-05-01 12:00:00,000",
        "E501 12:00:00.000",
        "May  1 12:00:00",
        "[2024/05/01 12:00:00] x",
        "05-01 12:00:00",
    )
    assert len({find_stamp(form).seconds for form in forms}) == 1
    zoned, utc = find_stamp("2024-05-01T20:00:00+08:00"), find_stamp("2024-05-01T12:00:00Z")
    assert zoned == utc
    assert find_stamp("99/99 12:00:00") is None
    assert find_stamp("loss 2.3") is None


def test_pieces_and_order_of_names():
    assert len(pieces("[rank1]: a[rank2]: b")) == 2
    assert sorted(["rank_10", "rank_2"], key=by_number) == ["rank_2", "rank_10"]


def test_sources_of_a_missing_file():
    assert all(isinstance(found, Problem) for found in sources(["/nonexistent/x"]))
