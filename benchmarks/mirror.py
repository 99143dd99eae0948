"""A checkpoint to object storage and back, beside the AWS command-line client on the same server in the same run.

    python -P benchmarks/mirror.py                    # 5 tries; rewrites the table in docs/benchmarks.md
    python -P benchmarks/mirror.py --mb 256 --tries 1 --no-write

The server is SeaweedFS on this machine, which the tests use too. Both are whole commands, started anew for each try:
our copier and our restore compare every byte with the manifest's checksums and sync what they write; `aws s3 cp
--recursive` with its defaults checks what the service tells. The client is installed into an environment of its own. Both
upload at the lowest priority for processor and disk, as our copier always does.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # the server is the tests', which nobody installs

from benchmarks.document import put
from contract.config import RunConfig, dump
from contract.layout import RunDir
from contract.manifest import Manifest, Shard, digest_file, examine, publish
from tests.storage import CREDENTIALS, server

HERE = Path(__file__).resolve().parents[1]
SHARDS = 4
LOWEST = ("nice", "-n", "19", "ionice", "-c", "3")
RESTORE = """
import os, sys, time
from pathlib import Path
from contract.config import read_resolved
from contract.copies.fetch import fetch
from contract.copies.pace import Pace
from contract.copies.target import Kind, open_store
from contract.layout import RunDir
run = RunDir(path=Path(sys.argv[1]))
store = open_store(read_resolved(run.config), Kind.MIRROR, run.run_id, os.environ)
pace = Pace(0.0, clock=time.monotonic, wait=time.sleep)
fetch(run, sys.argv[2], store, moved=lambda _: None, pace=pace)
"""


@dataclass
class Case:
    """One row: seconds, peak memory (MB) and processor seconds of each try."""

    name: str
    peer: str = ""
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def measure(case: Case, command: Sequence[str], environment: dict[str, str]) -> None:
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=HERE)
    _, status, used = os.wait4(process.pid, 0)
    case.seconds.append(time.perf_counter() - began)
    case.memory.append(used.ru_maxrss / 1024)
    case.processor.append(used.ru_utime + used.ru_stime)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"failed: {' '.join(command)}")


def aws_client(given: str, folder: Path) -> str:
    """The client that was named, or one in an environment of its own."""
    if given:
        return given
    print("installing awscli into an environment of its own", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "-q", "awscli"], check=True)
    return str(folder / "bin" / "aws")


def make_run(folder: Path, endpoint: str, megabytes: int) -> tuple[RunDir, Path]:
    run = RunDir(path=folder / "runs" / "bench")
    directory = run.checkpoint(100, 1, 1)
    directory.mkdir(parents=True)
    config = RunConfig.model_validate(
        {
            "run": {"steps": 1},
            "metadata": {"labels": {"ciuic.io/checkpoint-path": "s3://bucket/ours"}},
            "mirror": {"endpoint": endpoint},
        }
    )
    run.config.write_text(dump(config))
    shards = []
    for number in range(SHARDS):
        path = directory / f"rank-{number:05d}.pt"
        dice = random.Random(number)
        with path.open("wb") as file:  # in small pieces: a child's peak memory begins with its parent's
            for _ in range(megabytes // SHARDS):
                file.write(dice.randbytes(1_000_000))
        shards.append(Shard(path=path.name, size=path.stat().st_size, xxh3=digest_file(path)))
    what = {"run": run.run_id, "step": 100, "attempt": 1, "generation": 1, "world_size": SHARDS}
    publish(directory, Manifest(**what, tokens=0, position=0, shards=tuple(shards)))
    return run, directory


def run_all(aws: str, endpoint: str, folder: Path, megabytes: int, tries: int) -> list[Case]:
    run, directory = make_run(folder, endpoint, megabytes)
    told = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    environment = {**os.environ, **CREDENTIALS, **told}
    cases = [
        Case("upload, ciuic", "upload, aws"),
        Case("upload, aws"),
        Case("restore, ciuic", "restore, aws"),
        Case("restore, aws"),
    ]
    client = [aws, "--endpoint-url", endpoint, "s3"]
    ours, theirs, fetched = "s3://bucket/ours/bench/", "s3://bucket/aws/", folder / "fetched"
    python = [sys.executable, "-P"]
    up = [
        [*python, "-m", "supervisor.copies", str(run.path), "mirror", "1", "0"],
        [*LOWEST, *client, "cp", "--recursive", str(directory), theirs],
    ]
    down = [
        [*python, "-c", RESTORE, str(run.path), directory.name],
        [*client, "cp", "--recursive", theirs, str(fetched)],
    ]
    for number in range(tries):
        order = (0, 1) if number % 2 else (1, 0)
        for which in order:
            measure(cases[which], up[which], environment)
        shutil.rmtree(directory)
        for which in order:
            measure(cases[2 + which], down[which], environment)
        if not examine(directory, deep=True).valid:
            raise SystemExit("what was brought back is not valid")
        shutil.rmtree(fetched)
        for place in (ours, theirs):
            removal = [*client, "rm", "--recursive", "--quiet", place]
            subprocess.run(removal, env=environment, check=True, stdout=subprocess.DEVNULL)
        (run.copies / "mirror.json").unlink()
        print(", ".join(f"{case.name} {case.seconds[-1]:.2f} s" for case in cases), flush=True)
    return cases


def table(cases: Sequence[Case], megabytes: int, tries: int, version: str) -> str:
    """The section of the document."""
    found = {case.name: statistics.median(case.seconds) for case in cases}
    lines = [
        (
            f"`python -P benchmarks/mirror.py --mb {megabytes} --tries {tries}` on {os.cpu_count()} cores: a checkpoint of "
            f"{megabytes} MB in {SHARDS} files, SeaweedFS on the same machine, {version.split(maxsplit=1)[0]} with its defaults; "
            "medians, whole commands."
        ),
        "",
        "| case | seconds | MB/s | peak memory | processor | time against aws |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        seconds = found[case.name]
        ratio = f"{seconds / found[case.peer]:.2f}" if case.peer else "1.00"
        lines.append(
            f"| {case.name} | {seconds:.2f} s | {megabytes / seconds:.0f} | {statistics.median(case.memory):.0f} MB "
            f"| {statistics.median(case.processor):.2f} s | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=1000, help="size of the checkpoint")
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--aws", default="", help="path of the AWS client; else it is installed")
    parser.add_argument("--no-write", action="store_true", help="print the table only")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ciuic-mirror-") as name,
        server(Path(name) / "store") as endpoint,
    ):
        folder = Path(name)
        aws = aws_client(options.aws, folder / "awscli")
        version = subprocess.run([aws, "--version"], capture_output=True, text=True, check=True).stdout
        cases = run_all(aws, endpoint, folder, options.mb, options.tries)
    text = table(cases, options.mb, options.tries, version)
    print(text)
    if not options.no_write:
        put("mirror", text)


if __name__ == "__main__":
    main()
