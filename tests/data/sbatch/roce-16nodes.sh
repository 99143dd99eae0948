#!/bin/bash

# Parameters
#SBATCH --chdir=/shared/runs/roce-16nodes-dry-run
#SBATCH --comment=ciuic:roce-16nodes-dry-run:a0001
#SBATCH --cpus-per-task=96
#SBATCH --dependency=singleton
#SBATCH --export=PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_ALL,LD_LIBRARY_PATH,TZ,VIRTUAL_ENV,PYTHONSAFEPATH,SLURM_CONF,SUBMITIT_EXECUTOR,SUBMITIT_PREEMPT_SIGNAL
#SBATCH --gpus-per-node=8
#SBATCH --job-name=roce-16nodes-dry-run
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --nodes=17
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/shared/runs/roce-16nodes-dry-run/attempts/0001/submission/%j_0_log.out
#SBATCH --propagate=NONE
#SBATCH --signal=USR1@900
#SBATCH --time=10080
#SBATCH --wckey=''

# setup
ln -f /shared/runs/roce-16nodes-dry-run/attempts/0001/submission/agent.pkl /shared/runs/roce-16nodes-dry-run/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl 2>/dev/null || cp -f /shared/runs/roce-16nodes-dry-run/attempts/0001/submission/agent.pkl /shared/runs/roce-16nodes-dry-run/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /shared/runs/roce-16nodes-dry-run/attempts/0001/submission/%j_%t_log.out --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0 --cpus-per-task=96 PYTHON -P -u -m submitit.core._submit /shared/runs/roce-16nodes-dry-run/attempts/0001/submission
