"""`ciuic demo`: the main job on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from contract.options import Lang


def demo(
    root: Annotated[Path, typer.Option(help="Where the demo's run directories go.")] = Path("runs/demo"),
    lang: Lang = "",
) -> None:
    """Train a small model, kill one rank, freeze one, and see the run recover and finish."""
    from contract.language import language
    from supervisor.demo.display import Display
    from supervisor.demo.story import DemoError, tell_the_story

    recipe = Path(__file__).resolve().parent.parent / "configs" / "tiny-local.toml"
    try:
        good = tell_the_story(recipe, root.resolve(), Display(language(lang)))
    except DemoError as error:
        typer.echo(f"demo: {error}", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(0 if good else 1)
