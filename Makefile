# Each recipe is short; `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
EXTRAS ?= train,s3
IMAGE  ?= ciuic
ENGINE ?= docker
export PYTHONSAFEPATH := 1
export ROOT SYSTEM RUN_AS DESTDIR PREFIX

.DEFAULT_GOAL := help
.PHONY: help setup demo submit config-named supervise status slurm-up slurm-down slurm-kill-node slurm-start-node install-service uninstall-service reference wheelhouse image image-sqsh image-sif image-report test test-quick \
        test-full check fix bench bench-mirror bench-slurm clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## make .venv with the pinned packages and build DeepSpeed's CPU operators once

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash tools/setup.sh
	@touch $@

demo: $(STAMP) ## the main job on this machine: train, kill, freeze, recover, tell
	@$(BIN)/ciuic demo

submit: config-named $(STAMP) ## submit a run: make submit CONFIG=configs/tiny-local.toml
	@$(BIN)/ciuic submit "$(CONFIG)"

config-named:
	@test -n "$(CONFIG)" || { echo "which run? make submit CONFIG=configs/tiny-local.toml (recipes: $(wildcard configs/*.toml))" >&2; exit 2; }

supervise: $(STAMP) ## the supervisor, in the foreground
	@$(BIN)/ciuic supervise

status: $(STAMP) ## all runs, one line each
	@$(BIN)/ciuic status

install-service: $(STAMP) ## the supervisor as a service: ROOT=DIR [SYSTEM=1 RUN_AS=USER] (else the user's own, without root)
	@VENV="$(VENV)" bash tools/service.sh install

uninstall-service: ## remove it again (same SYSTEM=1); runs and keys stay
	@VENV="$(VENV)" bash tools/service.sh uninstall

slurm-up: ## a real Slurm on this machine (four nodes; ACCOUNTING=1: with slurmdbd); prints the export line to copy
	@$(PYTHON) -P tests/cluster/slurm_cluster.py up $(if $(ACCOUNTING),--accounting)

slurm-down: ## end it, and everything that it runs
	@$(PYTHON) -P tests/cluster/slurm_cluster.py down

slurm-kill-node: ## make slurm-kill-node NODE=n2 [KEEP=1]: SIGKILL a node daemon with its processes (KEEP=1: without)
	@$(PYTHON) -P tests/cluster/slurm_cluster.py kill-node "$(NODE)" $(if $(KEEP),--keep)

slurm-start-node: ## make slurm-start-node NODE=n2: bring the node back
	@$(PYTHON) -P tests/cluster/slurm_cluster.py start-node "$(NODE)"

test: $(STAMP) ## what fits 25 minutes on two cores; says what it skipped
	@$(BIN)/python -P -m pytest -m "not slow"
	@echo "left out: the tests marked slow (minutes of Slurm's own time-outs); make test-full runs them"

test-quick: $(STAMP) ## pure decisions and small files, under 2 minutes
	@$(BIN)/python -P -m pytest -m "quick"

test-full: $(STAMP) ## everything
	@$(BIN)/python -P -m pytest

check: $(STAMP) ## format, lint, types, import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fix: $(STAMP) ## let ruff repair what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## measure recovery beside torchrun; writes the table of docs/benchmarks.md
	@$(BIN)/python -P benchmarks/recovery.py

bench-mirror: $(STAMP) ## measure copies of checkpoints beside the AWS client (5 minutes)
	@$(BIN)/python -P benchmarks/mirror.py

bench-slurm: $(STAMP) ## measure what each fault costs on a real Slurm (10 minutes)
	@$(BIN)/python -P benchmarks/slurm_faults.py

reference: $(STAMP) ## write the documents that are made from the code: settings, commands, failures
	@$(BIN)/python -P tools/reference.py

wheelhouse: $(STAMP) ## every package for a node without internet, in wheelhouse/ (EXTRAS=train,s3; empty: the supervisor alone)
	@env -u PYTHONSAFEPATH $(BIN)/python -P -m pip wheel -q --disable-pip-version-check -w wheelhouse -c constraints.txt ".$(if $(EXTRAS),[$(EXTRAS)])"
	@echo "there: python3 -m venv venv; venv/bin/pip install --no-index --find-links wheelhouse 'ciuic$(if $(EXTRAS),[$(EXTRAS)])'"

image: ## the image of image/Dockerfile: IMAGE=name ENGINE=docker|podman
	@$(ENGINE) build -t "$(IMAGE)" -f image/Dockerfile .

image-sqsh: image ## the same as a file for pyxis: $(IMAGE).sqsh (needs enroot)
	@enroot import -o "$(IMAGE).sqsh" "dockerd://$(IMAGE)"

image-sif: image ## the same as a file for Apptainer: $(IMAGE).sif
	@apptainer build "$(IMAGE).sif" "docker-daemon://$(IMAGE):latest"

image-report: ## what doctor says inside it, to compare with `ciuic doctor --json` outside
	@$(ENGINE) run --rm "$(IMAGE)"

clean: ## remove the environment and caches; runs stay
	@rm -rf "$(VENV)" .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info
