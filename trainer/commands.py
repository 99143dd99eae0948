"""Commands of the training program, mounted by the top-level command line. Imports no torch."""

from pathlib import Path
from typing import Annotated, Any

import typer

from contract.language import spoken
from contract.options import Lang
from contract.plain import plainly
from trainer.chinese import TRAINER
from trainer.commands_fit import fit

app = typer.Typer(no_args_is_help=True, help="Prepare data, measure what fits.")


@app.callback()
def trainer() -> None:
    """Prepare data, measure what fits."""


app.command("fit")(fit)


@app.command("prepare-data")
def prepare_data(  # noqa: PLR0913, PLR0917 — options of a command
    target: Annotated[Path, typer.Argument(help="Directory to write; it must not exist yet.")],
    source: Annotated[
        list[Path] | None, typer.Option(help="Text file, or directory searched for text files. Repeatable.")
    ] = None,
    stdlib: Annotated[
        bool, typer.Option("--stdlib", help="Add the sources of Python's standard library.")
    ] = False,
    vocab: Annotated[
        int, typer.Option(help="Size of the BPE vocabulary to train; 0 keeps plain bytes.")
    ] = 1024,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Use the tokenizer of this prepared directory instead of --vocab, to mix the two."),
    ] = None,
    cap_mb: Annotated[float, typer.Option(help="Take at most so many megabytes of text; 0 takes all.")] = 0,
    validation: Annotated[float, typer.Option(help="Share of the text that is held out.")] = 0.05,
    json_output: Annotated[bool, typer.Option("--json", help="Print the index as JSON.")] = False,
    lang: Lang = "",  # noqa: ARG001 — its callback sets what `told` reads
) -> None:
    """Turn text into token shards with a held-out part. Nothing is downloaded; a second call finds its work done."""
    import json

    from trainer.data import prepare as preparing

    sources = [*(source or []), *([preparing.standard_library()] if stdlib else [])]
    if not sources:
        raise typer.BadParameter("name at least one --source, or --stdlib")
    if vocab and vocab < 257:
        raise typer.BadParameter(
            "--vocab: 0 for bytes, or at least 257 (the bytes and the end of a document)"
        )
    recipe = preparing.Recipe(vocab_size=vocab, validation_share=validation, cap_bytes=int(cap_mb * 1e6))
    try:
        if tokenizer is not None:
            recipe = preparing.recipe_like(tokenizer, recipe)
        index = preparing.prepare(sources, target, recipe)
    except (preparing.PrepareError, OSError) as error:
        typer.echo(TRAINER.told(f"prepare-data: {plainly(error, spoken())}"), err=True)
        raise typer.Exit(1) from error
    typer.echo(json.dumps(index) if json_output else TRAINER.told(f"{target}: {_summary(index)}"))


def _summary(index: dict[str, Any]) -> str:
    counts = {
        name: sum(shard["tokens"] for shard in split["shards"]) for name, split in index["splits"].items()
    }
    vocab = index["tokenizer"]["vocab_size"]
    return f"{counts['train']:,} tokens to train on, {counts['validation']:,} held out, vocabulary {vocab:,}"
