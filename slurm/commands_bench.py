"""`ciuic bench`: collectives, pairs of nodes, sample reads. Alone it starts its ranks here; under `srun` it is one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.states import ExitCode

app = typer.Typer(no_args_is_help=True, help="Measure collectives, pairs of nodes, and sample reads.")

AsJson = Annotated[bool, typer.Option("--json", help="Print facts for programs.")]
Backend = Annotated[str, typer.Option(help="nccl on GPUs, gloo on CPU.")]
_LIMIT_S = 1800.0
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NAMES = "all-reduce,all-gather,reduce-scatter,all-to-all"


def _bytes(text: str) -> int:
    unit = _UNITS.get(text[-1:].upper(), 1)
    try:
        count = int(text.rstrip("KMGkmg")) * unit
    except ValueError:
        count = 0
    if count < 4:
        raise typer.BadParameter(f"{text}: a size is a number of bytes, with K, M or G")
    return count


@app.command()
def comm(
    ranks: Annotated[int, typer.Option(help="Ranks to start on this machine (not under srun).", min=2)] = 2,
    backend: Backend = "gloo",
    sizes: Annotated[str, typer.Option(help="Bytes, with K, M or G.")] = "64K,1M,16M,64M",
    collectives: Annotated[str, typer.Option(help="Which ones.")] = _NAMES,
    seconds: Annotated[float, typer.Option(help="Time for each row, about.", min=0.01)] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Algorithm and bus bandwidth of collectives, as nccl-tests define them, with the spread between the ranks."""
    unknown = set(collectives.split(",")) - set(_NAMES.split(","))
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: there are {_NAMES}")
    wanted = [str(_bytes(size)) for size in sizes.split(",")]
    found = _measured("trainer.measure.collectives", [backend, str(seconds), collectives, *wanted], ranks)
    if found is None:
        return
    typer.echo(json.dumps(found) if as_json else _table(found))


def _table(found: dict[str, Any]) -> str:
    head = f"{found['ranks']} ranks, {found['backend']}; S/t and, for the bus, 2(n-1)/n or (n-1)/n of it, as in nccl-tests"
    lines = [
        head,
        f"{'':16}{'bytes':>12}{'time':>12}{'algorithm':>14}{'bus':>14}   ranks, fastest to slowest",
    ]
    for row in found["rows"]:
        spread = f"{row['fastest_rank_s'] * 1e6:.0f} to {row['slowest_rank_s'] * 1e6:.0f} µs (rank {row['slowest_rank']})"
        lines.append(
            f"{row['collective']:16}{row['bytes']:>12}{row['seconds'] * 1e6:>9.0f} µs"
            f"{row['algorithm_bytes_per_s'] / 1e9:>9.3f} GB/s{row['bus_bytes_per_s'] / 1e9:>9.3f} GB/s   {spread}"
        )
    return "\n".join(lines)


@app.command()
def pairs(backend: Backend = "gloo", as_json: AsJson = False) -> None:
    """Under `srun --ntasks-per-node=1`: name the node that is slow, loses packets or computes wrongly (exit 1)."""
    from slurm.node.pairing import judge, read

    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    everybody = _measured("trainer.measure.pairs", [backend, node], 2)
    if everybody is None:
        return
    nodes, seen, products = read(everybody)
    found = judge(nodes, seen, products)
    if as_json:
        unclear = [{"nodes": list(pair), "why": why} for pair, why in found.doubtful.items()]
        typer.echo(json.dumps({"nodes": nodes, "bad": dict(found.bad), "doubtful": unclear}))
    else:
        for name, why in found.bad.items():
            typer.echo(f"{name} {why}")
        for (one, other), why in found.doubtful.items():
            typer.echo(f"{one} or {other}, or the way between them: {why}")
        if not found.bad and not found.doubtful:
            typer.echo(f"all {len(nodes)} nodes are alike")
    if found.bad or found.doubtful:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def read(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Prepared directory, s3://bucket/prefix, or a recipe (.toml)."),
    ],
    stage: Annotated[
        Path | None, typer.Option(help="Also from the copies here; of a recipe, its [node] stage.")
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens of a sample; 0: the recipe's, else 4096.", min=0)] = 0,
    samples: Annotated[int, typer.Option(help="How many are read.", min=2)] = 1000,
    seed: Annotated[int, typer.Option(help="Which ones.")] = 0,
    as_json: AsJson = False,
) -> None:
    """How long a sample takes to read: median and 99th percentile, from the source and from the node's own disk."""
    numbers = [data, str(length), str(samples), str(seed)]
    command = [
        sys.executable,
        "-P",
        "-m",
        "trainer.measure.reads",
        *numbers,
        *([str(stage)] if stage else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        typer.echo(done.stdout.strip() or done.stderr.strip().rsplit("\n", 1)[-1], err=True)
        raise typer.Exit(ExitCode.FAILED)
    if as_json:
        typer.echo(done.stdout.strip())
        return
    found = json.loads(done.stdout)
    for place in ("source", "staged"):
        if place in found:
            row = found[place]
            part = f", {found['staged_share']:.0%} of the reads from copies" if place == "staged" else ""
            typer.echo(
                f"{place}: p50 {row['p50_s'] * 1e3:.3f} ms, p99 {row['p99_s'] * 1e3:.3f} ms, mean {row['mean_s'] * 1e3:.3f} ms{part}"
            )


def _measured(module: str, arguments: list[str], ranks: int) -> Any:
    """What rank 0 found, None in the tasks of the other ranks."""
    from slurm.ranks import RanksError, run

    try:
        said = run(module, arguments, ranks=ranks, limit_s=_LIMIT_S)
    except RanksError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(ExitCode.FAILED) from error
    return json.loads(said) if said else None
