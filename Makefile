# Everything runs in .venv, made on first use from constraints.txt.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
SHAPE ?= 8,144,56,56
KERNEL ?= 3
# What tests and types keep for the next run, in any checkout: each is found by the text that it was made of.
KEPT := $${XDG_CACHE_HOME:-$$HOME/.cache}/dwconv-tests

# Threads of OpenMP that wait must not take the cores from the tests beside them.
PYTEST := OMP_WAIT_POLICY=passive $(PY) -m pytest -n logical --maxprocesses 8 --dist worksteal

.PHONY: tune test test-all test-tsan test-arm prebuilt prebuilt-for base dist kernels lint format clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

tune: $(VENV)/installed  ## tune SHAPE=N,C,H,W KERNEL=K on this machine, about a minute
	$(PY) -m dwconv.tune --shape $(SHAPE) --kernel $(KERNEL) --layout nhwc

test: $(VENV)/installed  ## the test suite
	$(PYTEST)

test-all: $(VENV)/installed  ## all of it: every template, pass and type on every odd shape, too
	$(PYTEST) -m "slow or not slow"

test-tsan: $(VENV)/installed  ## the lanes of the concurrency backend under ThreadSanitizer
	$(PY) -m pytest -m slow tests/native/test_lanes.py

# The oldest and the newest PyTorch that the tests hold, each with a virtual environment of its own. On Linux their wheels
# are those with CUDA, some gigabytes, which choose their own version of it.
TORCH_VERSIONS ?= 2.11.0 2.15.0
TESTS_OF_PYTORCH := tests/call tests/native tests/concurrency tests/reporting tests/call/test_function_mode.py tests/discovery/test_discovery.py \
  tests/model/test_nn.py tests/test_package.py tests/problems/test_pytorch.py tests/test_readme.py tests/model/test_reverting.py \
  tests/model/test_subclasses.py tests/parallel

.venv-torch-%/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	sed -e 's/^torch==.*/torch==$*/' -e '/^nvidia-/d' -e '/^cuda-/d' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint $(@D)/constraints.txt --editable '.[test]'
	@touch $@

test-versions: $(TORCH_VERSIONS:%=test-torch-%)  ## what touches PyTorch, with its oldest and newest version: TORCH_VERSIONS='2.11.0 2.15.0'

test-torch-%: .venv-torch-%/installed
	OMP_WAIT_POLICY=passive $(<D)/bin/python -m pytest -n logical --maxprocesses 8 --dist worksteal $(TESTS_OF_PYTORCH)

.PRECIOUS: .venv-torch-%/installed

# A Python for arm64 that qemu runs: two gigabytes, and half an hour. It needs debootstrap, qemu-user-static and
# g++-aarch64-linux-gnu, of Debian.
ARM ?= build/arm
THERE := PYTHONPATH=. CXX=aarch64-linux-gnu-g++ $(ARM)/bin/python -m

test-arm: $(VENV)/installed  ## every CPU template, calls and training steps on Arm, emulated; not in the suite
	$(PY) -m tests.arm.root $(ARM)
	CXX=aarch64-linux-gnu-g++ $(PY) -m tests.arm.kernels build $(ARM)/kernels.bin
	$(THERE) tests.arm.kernels verify $(ARM)/kernels.bin
	rm -rf $(ARM)/pack
	CXX=aarch64-linux-gnu-g++ DWCONV_NATIVE=0 $(PY) -m dwconv.export --generic --target cpu:neon -o $(ARM)/pack
	$(THERE) tests.arm.train pack $(ARM)/pack
	$(THERE) tests.arm.train tuned

PYTHONS ?= python3

TORCHES ?= $(shell sed -n 's/^torch==//p' constraints.txt)

# Where the wheel brings the C++ of calls compiled, no compiler is needed: for each of PYTHONS with each of TORCHES.
prebuilt:
	rm -rf dwconv/native/prebuilt
	for python in $(PYTHONS); do for torch in $(TORCHES); do \
	  rm -rf .venv-dist && $$python -m venv .venv-dist && \
	  .venv-dist/bin/pip install --quiet --disable-pip-version-check torch==$$torch --editable . && \
	  .venv-dist/bin/python -c 'from dwconv.native import compile as c; print(c.compile_into(c.PREBUILT))' || exit 1; \
	done; done
	rm -rf .venv-dist

prebuilt-for: $(VENV)/installed  ## the C++ of calls for the PyTorch in the folder TORCH and the interpreter PYTHON, which need not run here together
	$(PY) -c 'import sys; from pathlib import Path; from dwconv.native.compile import compile_for; print(compile_for(Path(sys.argv[1]), sys.argv[2]))' $(TORCH) $(PYTHON)

# Kernels for every layer that the package brings, for each of BASES: Arm's on an Arm machine, or with a cross compiler.
BASES ?= $(if $(filter aarch64,$(shell uname -m)),neon,avx2 avx512 $(if $(shell command -v aarch64-linux-gnu-g++),neon))
ARM_CXX = $(if $(filter aarch64,$(shell uname -m)),,CXX=aarch64-linux-gnu-g++)

base: $(VENV)/installed
	rm -rf dwconv/kernels/base
	for name in $(BASES); do \
	  env $$([ $$name = neon ] && echo $(ARM_CXX)) $(PY) -c \
	    'import sys; from dwconv.packs.write_pack import make_base_pack as make; print(make(sys.argv[1]))' $$name || exit 1; \
	done

dist: $(VENV)/installed prebuilt base  ## the sdist, the wheel made from it with the C++ of calls compiled and kernels for every layer, both checked, and the wheel tried in a new environment of each of PYTHONS
	rm -rf dist
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build twine
	$(PY) -m build --quiet
	$(VENV)/bin/twine check --strict dist/*
	for python in $(PYTHONS); do \
	  rm -rf .venv-dist && $$python -m venv .venv-dist && grep '^torch==' constraints.txt > .venv-dist/torch.txt && \
	  .venv-dist/bin/pip install --quiet --disable-pip-version-check --constraint .venv-dist/torch.txt dist/*.whl && \
	  (cd .venv-dist && bin/dwconv --version && \
	   CXX=none bin/python -c 'from dwconv import native; assert native.native(), native.why_not' && \
	   bin/python -c 'from dwconv.dispatch import loaded_packs as packs; assert packs.are_for_every_layer(), "no kernels for this CPU"' && \
	   bin/dwconv tune --shape 2,16,8,8 --kernel 3 --layout nhwc --seconds 1 --log log.jsonl) || exit 1; \
	done
	rm -rf .venv-dist

TARGETS ?= cpu:avx2 cpu:avx512

kernels: $(VENV)/installed  ## packs of kernels for every layer, of TARGETS='cpu:avx2 cpu:avx512' or cuda:sm_90, in dist/kernels; cpu:neon on Arm
	for target in $(TARGETS); do \
	  $(PY) -m dwconv.export --generic --target $$target -o dist/kernels/$${target#*:} || exit 1; \
	done

lint: $(VENV)/installed  ## style, types, import layers
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy --cache-dir "$(KEPT)/mypy" -p dwconv -p bench

format: $(VENV)/installed  ## rewrite in the house style
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

clean:  ## remove what was built, and what the tests keep of it
	rm -rf $(VENV) build dist dwconv/kernels/base *.egg-info "$(KEPT)"
