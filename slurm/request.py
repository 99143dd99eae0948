"""What is asked of Slurm or of this machine for one attempt. Pure: the submitter hands it to submitit as it is."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.config import RunConfig
from contract.copies.bucket import CREDENTIALS
from contract.layout import RunDir
from slurm.container import NOT_INSIDE, python, srun_options

# Names, not values: sbatch takes the values from the submitter's environment, so that none stands in the script.
# Without them a job has no PATH, or a submitit that does not know how to talk to its executor.
EXPORTED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "TZ",
    "VIRTUAL_ENV",
    "PYTHONSAFEPATH",
    "SLURM_CONF",
    "SUBMITIT_EXECUTOR",
    "SUBMITIT_PREEMPT_SIGNAL",
)
# --wait=0 and --kill-on-bad-exit=0: with srun's other choices the first exit 75 kills its neighbours in the middle of
# their save. --no-kill: the step survives the loss of a node. --export=ALL: sbatch's list would apply here again.
_SRUN = ("--export=ALL", "--no-kill", "--kill-on-bad-exit=0", "--wait=0")

PICKLE = "agent.pkl"


def attempt_tag(run_id: str, attempt: int) -> str:
    """The comment by which a job is found again when its submission is in doubt (design rule 5)."""
    return f"ciuic:{run_id}:a{attempt:04d}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One job: one agent on each of `agents` nodes. `python`: the shell's words that start it there."""

    name: str
    tag: str
    folder: str
    chdir: str
    agents: int
    gpus_per_node: int
    gpus_in_all: int
    cpus_per_node: int
    time_limit_min: int
    signal_before_limit_s: int
    partition: str
    account: str
    qos: str
    exclude: tuple[str, ...]
    export: tuple[str, ...]
    sbatch: Mapping[str, str]
    container: tuple[str, ...]
    python: str

    def slurm(self) -> dict[str, Any]:
        """Parameters of submitit's SlurmExecutor."""
        wanted: dict[str, Any] = {
            "job_name": self.name,
            "comment": self.tag,
            "time": self.time_limit_min,
            "nodes": self.agents,
            "ntasks_per_node": 1,
            "cpus_per_task": self.cpus_per_node or None,
            "gpus_per_node": self.gpus_per_node or None,
            "partition": self.partition or None,
            "account": self.account or None,
            "qos": self.qos or None,
            "exclude": ",".join(self.exclude) or None,
            "dependency": "singleton",
            "signal_delay_s": self.signal_before_limit_s,
            "wckey": "",
            "stderr_to_stdout": True,
            "setup": self._setup(),
            "srun_args": [*_SRUN, *self._cpus(), *self.container],
            "additional_parameters": self._additional(),
        }
        return {key: value for key, value in wanted.items() if value is not None}

    def local(self) -> dict[str, Any]:
        """Parameters of submitit's LocalExecutor: it knows one node, so that our nodes become its tasks."""
        return {
            "nodes": 1,
            "tasks_per_node": self.agents,
            "gpus_per_node": self.gpus_in_all,
            "timeout_min": self.time_limit_min,
            "signal_delay_s": self.signal_before_limit_s,
            "stderr_to_stdout": True,
        }

    def _setup(self) -> list[str]:
        # submitit puts the pickle into place when sbatch has answered. A job whose submitter died before that, or
        # whose answer was lost, would wait for it in vain: it takes its own copy.
        ours = shlex.quote(f"{self.folder}/{PICKLE}")
        its = shlex.quote(f"{self.folder}/") + '"$SLURM_JOB_ID"_submitted.pkl'
        return [f"ln -f {ours} {its} 2>/dev/null || cp -f {ours} {its}"]

    def _cpus(self) -> list[str]:
        # srun of 22.05 and 23.02 does not take the job's value over; submitit does not pass it either.
        return [f"--cpus-per-task={self.cpus_per_node}"] if self.cpus_per_node else []

    def _additional(self) -> dict[str, Any]:
        # True becomes a bare flag. The config refuses the keys that stand here.
        extra = {key.replace("_", "-"): value or True for key, value in self.sbatch.items()}
        return extra | {
            "no-requeue": True,
            "no-kill": True,
            "open-mode": "append",
            "propagate": "NONE",
            "chdir": self.chdir,
            "export": ",".join(self.export),
        }


def build_request(run: RunDir, config: RunConfig, attempt: int, exclude: Sequence[str] = ()) -> Request:
    """The request for one attempt; `exclude` are nodes left out on evidence, on top of the config's."""
    job = config.job
    secrets = config.alerts.secrets
    # A restore happens where the ranks are, and so does staging.
    mirror = CREDENTIALS if config.metadata.bucket[0] or config.data.stored else ()
    return Request(
        name=run.run_id,
        tag=attempt_tag(run.run_id, attempt),
        folder=str(run.attempt(attempt).submission),
        chdir=str(run.path),
        agents=job.nodes + job.spare_nodes,
        gpus_per_node=job.gpus_per_node,
        gpus_in_all=job.gpus_per_node * job.nodes,
        cpus_per_node=job.cpus_per_node,
        time_limit_min=job.time_limit_min,
        signal_before_limit_s=job.signal_before_limit_s,
        partition=job.partition,
        account=job.account,
        qos=job.qos,
        exclude=tuple(dict.fromkeys([*job.exclude, *exclude])),
        export=tuple(
            name
            for name in dict.fromkeys([*EXPORTED, *mirror, *config.trackers.variables, *job.export])
            if name not in secrets and not (job.image and name in NOT_INSIDE)
        ),
        sbatch=dict(job.sbatch),
        container=tuple(srun_options(config, run)),
        python=python(config, run, sys.executable),
    )
