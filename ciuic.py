"""The command line: mounts each program's commands. Importing it takes no torch and no submitit."""

import sys


def main() -> None:
    """Entry point of `ciuic`."""
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
    )
    launch.mount(app)
    supervision.mount(app)
    app.add_typer(trainer, name="trainer", help="Prepare data and what else belongs to the training program.")
    app()


if __name__ == "__main__":
    sys.exit(main())
