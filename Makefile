# Two commands on a fresh machine: `make demo` runs the main job, `make test` passes the tests.
# Each sets up .venv/ from requirements.lock by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A package index with CPU-only torch wheels, for machines where the plain pin brings CUDA.
TORCH_INDEX ?=
PYTEST_FLAGS ?= -n 2 --dist loadfile --no-loadscope-reorder

export HF_HUB_OFFLINE := 1

.PHONY: demo test check lint types schemas bench bench-big gpu-check hostile corpus mutants dist zoo zoo-ops fuzz-convert lock venv clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo   convert, prove, measure and package two real models; leaves demo-out/"
	@echo "make test   run the tests"
	@echo "make check  lint, types, schemas"
	@echo "make dist   build wheel and source archive; try each in a clean environment; test the wheel"
	@echo "make bench  print the figures of benchmarks/"
	@echo "make gpu-check  the demo on CUDA through the endpoint, where there is a GPU"
	@echo "make hostile    hostile requests, 270 attacks, bad endpoints, faults of disks; resumes; hostile-out/"
	@echo "make zoo    convert some hundred small models to three formats; resumes; docs/explanation/zoo.md"
	@echo "make fuzz-convert  100 random programs in three formats; resumes; leaves fuzz-out/"
	@echo "make corpus judge hundreds of good and damaged artifacts; resumes; leaves corpus-out/"
	@echo "make mutants judge sixty wrong lowerings; resumes; leaves mutants-out/"

venv: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' \
	  || { echo "edgeserve needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --quiet torch==2.13.0 --index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@# Until 0.2 the distribution was called as the package is.
	$(BIN)/python -m pip uninstall --quiet --yes edgeserve 2>/dev/null
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-build-isolation --no-deps --editable .
	@touch $@

# The lock is what a working environment holds; the local version tag of torch is dropped so that
# the pin resolves on any index.
lock: $(STAMP)
	@{ sed -n '/^#/p' requirements.lock; \
	   $(BIN)/python -m pip freeze --exclude-editable | sed -E 's/^(torch==[0-9.]+)\+.*/\1/'; \
	 } > requirements.lock.new && mv requirements.lock.new requirements.lock

# Exit code 1 says that an artifact was refused; what passed is packaged all the same.
demo: $(STAMP)
	$(BIN)/python -m dev.demo.photos demo-out/photos
	$(BIN)/python -m dev.demo.sentences demo-out/sentences
	$(BIN)/edgeserve run dev/demo/tagger.toml || test $$? -eq 1
	$(BIN)/edgeserve run dev/demo/embedder.toml || test $$? -eq 1
	$(BIN)/edgeserve verify demo-out/tagger.edge
	$(BIN)/edgeserve verify demo-out/minilm.edge
	$(BIN)/edgeserve predict demo-out/tagger.edge demo-out/photos/example.jpg
	$(BIN)/edgeserve predict demo-out/minilm.edge "a cat sleeps on the sofa"
	@echo "demo-out/tagger.edge and demo-out/minilm.edge are the packages; open demo-out/report.html"

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

check: lint types schemas

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

schemas: $(STAMP)
	$(BIN)/python -m dev.schemas --check spec/schema
	$(BIN)/python -m dev.errors_page --check docs/reference/errors.md

dist: $(STAMP)
	$(BIN)/python -m dev.distribution dist
	$(BIN)/python -m pytest -m dist tests/habits

bench: $(STAMP)
	$(BIN)/python -m dev.benchmarks

# Memory of converting 2.5 GB of weights; needs 15 GB of disk and 5 GB of memory.
bench-big: $(STAMP)
	$(BIN)/python -m dev.benchmarks.large_model

# The demo on CUDA through the endpoint; without a GPU it says so. Five minutes at most; resumes.
gpu-check: $(STAMP)
	timeout 300 $(BIN)/python -m dev.benchmarks.gpu_check

# 60,000 requests that nobody sends by accident, at a whole endpoint; then attacks, each with its
# memory and the latency of others. Exit code 1: one does what it must not. Attacks that are done
# stand in hostile-out/; `python -m dev.benchmarks.attacks --quick` takes a third of the time.
hostile: $(STAMP)
	$(BIN)/python -m dev.benchmarks.hostile
	$(BIN)/python -m dev.benchmarks.attacks
	$(BIN)/python -m dev.benchmarks.strangers
	$(BIN)/python -m dev.benchmarks.fault_loops --kills 50

# Exit code 1: a bad artifact was not refused. What is done stands in corpus-out/results.jsonl.
corpus: $(STAMP)
	$(BIN)/python -m dev.corpus --docs
	$(BIN)/python -m dev.corpus.servers

# Exit code 1: a wrong lowering was not refused, or too few are named.
mutants: $(STAMP)
	$(BIN)/python -m dev.mutants

# What is done stands in zoo-out/; what rests on other code is measured again (--keep takes it).
zoo: $(STAMP)
	$(BIN)/python -m pytest -m zoo tests/zoo tests/validate tests/corpus
	$(BIN)/python -m dev.zoo.run --group transformers --group plain

zoo-ops: $(STAMP)
	$(BIN)/python -m pytest -m zoo tests/backends
	$(BIN)/python -m dev.zoo.run --group ops
	$(BIN)/python -m dev.zoo.op_support --write

# Exit code 1: a file is wrong, a process crashed, or an error has no code.
fuzz-convert: $(STAMP)
	$(BIN)/python -m dev.fuzz_convert --seeds 0:100

clean:
	rm -rf $(VENV) build dist demo-out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
