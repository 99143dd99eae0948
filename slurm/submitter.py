"""`python -P -m slurm.submitter`: the only place that imports submitit. Prints one line of JSON.

    python -P -m slurm.submitter submit RUN_DIR ATTEMPT [EXCLUDED_NODE …]   {"job_id": …} or {"error": …}
    python -P -m slurm.submitter render RUN_DIR ATTEMPT <run.toml           {"script": …}

A process of its own, because the local executor's controller stays in the session of whoever starts it, and because
submitit reads SUBMITIT_PREEMPT_SIGNAL when it is imported.
"""

import json
import os
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

from contract.config import RunConfig, read_resolved
from contract.layout import RunDir
from slurm.launched import become_agent
from slurm.request import PICKLE, Request, build_request


def _submit(request: Request, run: RunDir, attempt: int, kind: str) -> dict[str, Any]:
    from submitit import LocalExecutor, SlurmExecutor  # noqa: PLC0415
    from submitit.core.utils import (  # noqa: PLC0415
        DelayedSubmission,
        FailedJobError,
        FailedSubmissionError,
    )

    try:
        if kind == "slurm":
            DelayedSubmission(become_agent, str(run.path), attempt).dump(Path(request.folder) / PICKLE)
            executor = SlurmExecutor(request.folder, python=request.python)
            executor.update_parameters(**request.slurm())
        else:
            executor = LocalExecutor(request.folder, python=request.python)
            executor.update_parameters(**request.local())
        job = executor.submit(become_agent, str(run.path), attempt)
    except (FailedJobError, FailedSubmissionError, RuntimeError, OSError) as error:
        return {"error": str(error) or type(error).__name__}
    return {"job_id": job.job_id}


def _render(request: Request) -> dict[str, Any]:
    from submitit.slurm.slurm import _make_sbatch_string  # noqa: PLC0415 - the executor itself needs srun

    command = f"{request.python} -u -m submitit.core._submit {shlex.quote(request.folder)}"
    return {"script": _make_sbatch_string(command=command, folder=request.folder, **request.slurm())}


def main(arguments: list[str]) -> int:
    """Carry out one order; the exit code only says whether a line was printed."""
    os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", "USR1")
    order, path, number, *exclude = arguments
    run, attempt = RunDir(path=Path(path)), int(number)
    if order == "render":  # of a run that does not exist yet
        config = RunConfig.model_validate(tomllib.loads(sys.stdin.read()))
        answer = _render(build_request(run, config, attempt, exclude))
    else:
        config = read_resolved(run.config)
        answer = _submit(build_request(run, config, attempt, exclude), run, attempt, config.job.executor)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
