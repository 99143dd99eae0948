#!/bin/bash

# Parameters
#SBATCH --chdir=/shared/runs/dry-run
#SBATCH --comment=ciuic:dry-run:a0001
#SBATCH --cpus-per-task=96
#SBATCH --dependency=singleton
#SBATCH --export=PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_ALL,TZ,PYTHONSAFEPATH,SLURM_CONF,SUBMITIT_EXECUTOR,SUBMITIT_PREEMPT_SIGNAL
#SBATCH --gpus-per-node=8
#SBATCH --job-name=dry-run
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --nodes=17
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/shared/runs/dry-run/attempts/0001/submission/%j_0_log.out
#SBATCH --propagate=NONE
#SBATCH --signal=USR1@900
#SBATCH --time=10080
#SBATCH --wckey=''

# setup
ln -f /shared/runs/dry-run/attempts/0001/submission/agent.pkl /shared/runs/dry-run/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl 2>/dev/null || cp -f /shared/runs/dry-run/attempts/0001/submission/agent.pkl /shared/runs/dry-run/attempts/0001/submission/"$SLURM_JOB_ID"_submitted.pkl

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /shared/runs/dry-run/attempts/0001/submission/%j_%t_log.out --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0 --cpus-per-task=96 apptainer exec --nv --no-home --bind /shared/runs:/shared/runs --bind /shared/data/tokens:/shared/data/tokens --bind /nvme:/nvme --bind /scratch:/scratch --bind /a:/b --pwd /shared/runs/dry-run /shared/images/ciuic.sif /opt/ciuic/bin/python -P -u -m submitit.core._submit /shared/runs/dry-run/attempts/0001/submission
