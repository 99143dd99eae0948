"""Entry of a worker: set up, train, leave with the agreed exit code.

Runs as `python -P -m trainer`, or is called in a process forked after `trainer.preload` was imported.
"""

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.page import WorkerPage, page_from_environment
from contract.states import ExitCode, Phase
from contract.stop import StopFlag
from trainer.errors import TrainerError
from trainer.evidence import offer_evidence
from trainer.log import configure
from trainer.recipe import read_config, wanted_accelerator
from trainer.stop import install
from trainer.worker import Worker, worker_from_environment

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The command line of a start without an agent; both empty under an agent."""

    config: Path | None
    run_dir: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; returns the exit code. Never raises: an exception goes to stderr and, short, into the page.

    The caller must leave the process with `os._exit` (see `trainer/__main__.py`).
    """
    stop = install()
    page = page_from_environment()
    offer_evidence()
    try:
        given = _parse(arguments)
        worker = worker_from_environment(os.environ, given.run_dir)
        configure(worker.rank, supervised=worker.supervised)
        return int(_run(worker, given, page, stop))
    except TrainerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        page.exception(type(error).__name__, str(error))
        return int(error.code)
    except Exception as error:  # the edge of the process: whatever it was, the supervisor must learn of it
        traceback.print_exc()
        page.exception(type(error).__name__, traceback.format_exception_only(error)[-1].strip())
        return int(ExitCode.FAILED)


def _parse(arguments: Sequence[str] | None) -> Arguments:
    parser = argparse.ArgumentParser(prog="python -P -m trainer", description="Train one run.")
    parser.add_argument("--config", type=Path, help="recipe to train when no node agent started us")
    parser.add_argument("--run-dir", type=Path, help="directory for checkpoints and metrics, made if missing")
    # A forked worker has its parent's command line, which is not for us.
    given = parser.parse_args([] if arguments is None and "CIUIC_RUN_DIR" in os.environ else arguments)
    return Arguments(config=given.config, run_dir=given.run_dir)


def _run(worker: Worker, line: Arguments, page: WorkerPage, stop: StopFlag) -> ExitCode:
    """Build everything, train, and close the communicators in an agreed end."""
    page.mark(step=0, phase=Phase.START)
    config = read_config(worker, line.config)
    # Read when DeepSpeed is imported; in a forked worker that has happened, with the agent's choice.
    os.environ.setdefault("DS_ACCELERATOR", wanted_accelerator(config))
    from trainer import preload  # noqa: F401 - the imports, which a forked worker has behind it
    from trainer.assembly import assemble, plan
    from trainer.attention import preferred_kernels
    from trainer.distributed import Ranks

    given = plan(config, worker.run, ranks=worker.world_size)
    ranks = Ranks(
        worker,
        accelerator=wanted_accelerator(config),
        timeout_s=config.deepspeed.timeout_s,
        # Sooner than the supervisor's limit for the start: who is missing can only be told from here.
        patience_s=config.monitor.start_s / 2,
    )
    try:
        training, progress = assemble(given, worker, ranks, page, stop)
        with training.metrics, preferred_kernels(ranks.device):
            code = training.train(progress)
    except TrainerError:
        ranks.leave()  # from here on every rank comes to the same end at the same place
        raise
    page.enter(Phase.EXIT)
    ranks.leave()
    return code
