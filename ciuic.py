"""The command line: mounts each program's commands. Importing it takes no torch and no submitit."""

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer


def application() -> "Typer":
    """All commands."""
    from typer import Typer

    from slurm import commands as launch
    from supervisor import commands as supervision
    from trainer.commands import app as trainer

    app = Typer(
        name="ciuic",
        help="Keep DeepSeek-architecture training runs alive: submit, supervise, see. 提交、看护、查看训练任务。",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # help texts name sections such as [node]; they are no markup
    )
    launch.mount(app)
    supervision.mount(app)
    app.add_typer(trainer, name="trainer", help="Prepare data and what else belongs to the training program.")
    return app


def main() -> None:
    """Entry point of `ciuic`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal in GBK or ASCII must not end a command
    application()()


if __name__ == "__main__":
    main()
