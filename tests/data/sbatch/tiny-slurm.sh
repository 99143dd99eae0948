#!/bin/bash

# Parameters
#SBATCH --chdir=/shared/runs/tiny-slurm-dry-run
#SBATCH --comment=ciuic:tiny-slurm-dry-run:a0001
#SBATCH --dependency=singleton
#SBATCH --export=PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_ALL,LD_LIBRARY_PATH,TZ,VIRTUAL_ENV,PYTHONSAFEPATH,SLURM_CONF,SUBMITIT_EXECUTOR,SUBMITIT_PREEMPT_SIGNAL
#SBATCH --gres=gpu:1
#SBATCH --job-name=tiny-slurm-dry-run
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/shared/runs/tiny-slurm-dry-run/attempts/0001/submission/%j_0_log.out
#SBATCH --propagate=NONE
#SBATCH --signal=USR1@120
#SBATCH --time=60
#SBATCH --wckey=''

# setup
ln -f /shared/runs/tiny-slurm-dry-run/attempts/0001/submission/agent.pkl /shared/runs/tiny-slurm-dry-run/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl 2>/dev/null || cp -f /shared/runs/tiny-slurm-dry-run/attempts/0001/submission/agent.pkl /shared/runs/tiny-slurm-dry-run/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /shared/runs/tiny-slurm-dry-run/attempts/0001/submission/%j_%t_log.out --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0 PYTHON -P -u -m submitit.core._submit /shared/runs/tiny-slurm-dry-run/attempts/0001/submission
