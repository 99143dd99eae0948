"""`ciuic export`: a checkpoint in Hugging Face format. The training program writes it; it is started by name."""

import json
import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from contract.options import Lang


class Dtype(StrEnum):
    """Formats of exported weights."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run id, or the beginning of one.")],
    root: Annotated[
        Path | None, typer.Option("--root", help="Directory of the runs; else CIUIC_ROOT, else ./runs.")
    ] = None,
    step: Annotated[int, typer.Option(help="Step of the checkpoint; -1 is the newest valid one.")] = -1,
    out: Annotated[
        Path | None, typer.Option(help="Directory to write; it must not exist. Else RUN/exports/step-…")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Format of the weights.")] = Dtype.BF16,
    as_json: Annotated[bool, typer.Option("--json", help="Facts for programs.")] = False,
    lang: Lang = "",
) -> None:
    """Write a checkpoint in Hugging Face format, for `AutoModelForCausalLM.from_pretrained`."""
    from contract.language import language
    from supervisor.choose import NoSuchRunError, find_run, root_of
    from supervisor.words import text

    try:
        found = find_run(root_of(root), run)
    except NoSuchRunError as error:
        typer.echo(f"export: {error}", err=True)
        raise typer.Exit(1) from None
    command = [sys.executable, "-P", "-m", "trainer.export", str(found.path), "--step", str(step)]
    command += ["--dtype", dtype.value, *(["--out", str(out.expanduser().resolve())] if out else [])]
    # No device: what the checkpoint's files import must not claim one beside a run that trains here.
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise typer.Exit(done.returncode or 1)
    facts = json.loads(lines[-1])
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    words = language(lang)
    tokenizer = text("with-tokenizer" if facts["tokenizer"] else "no-tokenizer", words)
    shown = {"step": facts["step"], "size": facts["bytes"] / 1e6, "path": facts["path"]}
    typer.echo(text("exported", words, dtype=dtype.value, tokenizer=tokenizer, **shown))
