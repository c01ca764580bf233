# `make` lists the targets. Variables: ARGS (Hydra overrides), EXTRAS, FETCH, PYTHON, TORCH_INDEX, WORKERS.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
EXTRAS ?=
FETCH ?=
ARGS ?=
WORKERS ?= 2
VENV := .venv/bin

# $(call script,FILE,ARGUMENTS): run a script, or say plainly that a later part of the project brings it.
define script
@if [ ! -f scripts/$(1) ]; then echo "make $@: scripts/$(1) is not there yet (README, What is here)" >&2; exit 2; fi
$(VENV)/python scripts/$(1) $(2) $(ARGS)
endef

.PHONY: help setup lodo test lint type data tables status bench paper check-tables

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## create .venv from the locked packages; EXTRAS=gpu, llm, notebooks adds to it
	@PYTHON="$(PYTHON)" EXTRAS="$(EXTRAS)" requirements/setup.sh

lodo: setup ## leave one domain out: TACT and training-free rows, WORKERS processes; ARGS="data=real data.root=PATH" for real files
	OMP_NUM_THREADS=1 $(VENV)/torchrun --nproc_per_node=$(WORKERS) scripts/train.py experiment=lodo $(ARGS)

test: setup ## all tests; those on real files run where TOOLSHIFT_DATA names their folder
	OMP_NUM_THREADS=1 $(VENV)/python -m pytest -q -n $(WORKERS)

lint: setup type ## ruff, formatting, types, import contracts
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/lint-imports

type: setup ## pyright (part of lint)
	$(VENV)/pyright

data: setup ## FETCH=NAME|all: fetch raw files; otherwise read them into data/records; ARGS="data=real data.root=PATH"
	$(if $(FETCH),$(call script,download_data.py,dataset=$(FETCH)),$(call script,prepare.py,))

tables: setup ## rebuild outputs/tables from finished runs, no model loaded
	$(call script,make_tables.py,)

status: setup ## list runs: done, running, failed
	@if [ ! -f src/toolshift/runs/status.py ]; then echo "make $@: not there yet (README, What is here)" >&2; exit 2; fi
	@$(VENV)/python -m toolshift.runs.status $(ARGS)

bench: setup ## speed and memory figures of this machine
	$(call script,bench.py,)

paper: setup ## rebuild every table, list missing runs with commands and cost; starts none. ARGS="data=real data.root=PATH"
	$(call script,make_tables.py,paper)

check-tables: setup ## not there yet: compare tables with recorded values
	@echo "make check-tables: not there yet; no expected values are recorded (README, What is here)" >&2; exit 2
