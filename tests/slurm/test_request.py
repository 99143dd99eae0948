"""What is asked of submitit, to the letter: a change of the script must show as a diff."""

import shlex
import sys
from pathlib import Path

import pytest

from contract.layout import RunDir
from slurm.request import build_request
from slurm.submit import render_dry_run
from tests.slurm.conftest import config_of

SCRIPT = """#!/bin/bash

# Parameters
#SBATCH --account=team
#SBATCH --chdir=/shared/runs/deep-1
#SBATCH --comment=ciuic:deep-1:a0001
#SBATCH --constraint='h200&ib'
#SBATCH --cpus-per-task=96
#SBATCH --dependency=singleton
#SBATCH --exclude=n3,n7
#SBATCH --exclusive
#SBATCH --export=PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_ALL,LD_LIBRARY_PATH,TZ,VIRTUAL_ENV,PYTHONSAFEPATH,SLURM_CONF,SUBMITIT_EXECUTOR,SUBMITIT_PREEMPT_SIGNAL,HF_TOKEN
#SBATCH --gpus-per-node=8
#SBATCH --job-name=deep-1
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/shared/runs/deep-1/attempts/0001/submission/%j_0_log.out
#SBATCH --partition=h200
#SBATCH --propagate=NONE
#SBATCH --qos=high
#SBATCH --signal=USR1@600
#SBATCH --time=2880
#SBATCH --wckey=''

# setup
ln -f /shared/runs/deep-1/attempts/0001/submission/agent.pkl /shared/runs/deep-1/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl 2>/dev/null || cp -f /shared/runs/deep-1/attempts/0001/submission/agent.pkl /shared/runs/deep-1/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /shared/runs/deep-1/attempts/0001/submission/%j_%t_log.out --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0 --cpus-per-task=96 PYTHON -P -u -m submitit.core._submit /shared/runs/deep-1/attempts/0001/submission
"""

JOB = {
    "executor": "slurm",
    "nodes": 4,
    "spare_nodes": 1,
    "gpus_per_node": 8,
    "ranks_per_node": 8,
    "cpus_per_node": 96,
    "time_limit_min": 2880,
    "signal_before_limit_s": 600,
    "partition": "h200",
    "account": "team",
    "qos": "high",
    "exclude": ["n3", "n7"],
    "sbatch": {"constraint": "h200&ib", "exclusive": ""},
    "export": ["HF_TOKEN", "ROBOT"],
}


def slurm_config(**job):
    return config_of(job={**JOB, **job}, alerts={"wecom": {"key_env": "ROBOT"}})


def test_the_script_to_the_letter():
    script = render_dry_run(RunDir(path=Path("/shared/runs/deep-1")), slurm_config())
    assert script.replace(shlex.quote(sys.executable), "PYTHON") == SCRIPT


def test_odd_paths_and_values_stay_one_argument():
    run = RunDir(path=Path("/shared/团队 one's/deep-1"))
    script = render_dry_run(run, slurm_config(sbatch={"reservation": "a; rm -rf x"}))
    lines = {
        line.split("=", 1)[0]: line.split("=", 1)[1]
        for line in script.splitlines()
        if line.startswith("#SBATCH --") and "=" in line
    }
    assert shlex.split(lines["#SBATCH --chdir"]) == [str(run.path)]
    assert shlex.split(lines["#SBATCH --reservation"]) == ["a; rm -rf x"]
    srun = next(line for line in script.splitlines() if line.startswith("srun "))
    assert shlex.split(srun)[-1] == str(run.attempt(1).submission)


def test_evidence_adds_to_the_exclusions_and_the_tag_names_the_attempt():
    run = RunDir(path=Path("/r/deep-1"))
    asked = build_request(run, slurm_config(), 12, ["n7", "n9"]).slurm()
    assert asked["exclude"] == "n3,n7,n9"
    assert asked["comment"] == "ciuic:deep-1:a0012"
    assert asked["job_name"] == "deep-1"


def test_what_is_not_asked_for_is_not_said():
    run = RunDir(path=Path("/r/deep-1"))
    asked = build_request(run, config_of(job={"executor": "slurm"}), 1).slurm()
    for key in ("partition", "account", "qos", "exclude", "gpus_per_node", "cpus_per_task"):
        assert key not in asked
    assert asked["srun_args"] == ["--export=ALL", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]


def test_the_same_request_for_this_machine():
    local = build_request(RunDir(path=Path("/r/deep-1")), slurm_config(executor="local"), 1).local()
    assert local == {
        "nodes": 1,
        "tasks_per_node": 5,
        "gpus_per_node": 32,
        "timeout_min": 2880,
        "signal_delay_s": 600,
        "stderr_to_stdout": True,
    }


@pytest.mark.parametrize("value", ["a; rm -rf x", "a b", "a\nb", "$(id)", "a'b", "`id`", 'a"b', "分区"])
@pytest.mark.parametrize("key", ["partition", "account", "qos", "exclude"])
def test_names_that_slurm_would_not_take_are_refused(key, value):
    with pytest.raises(ValueError, match=key):
        slurm_config(**{key: [value] if key == "exclude" else value})


@pytest.mark.parametrize(
    "sbatch", [{"a;b": "x"}, {"--wrap": "x"}, {"reservation": "x\n#SBATCH --requeue"}, {"requeue": ""}]
)
def test_further_options_cannot_smuggle_others(sbatch):
    with pytest.raises(ValueError, match="sbatch"):
        slurm_config(sbatch=sbatch)
