# make demo | test | lint | bench | results. Each makes .venv on first use; see tools/venv.sh for the choice of Python.
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check

# PYTHON=... is the Python of $(VENV); clean and test-current don't use that folder.
ifneq ($(PYTHON),)
ifeq ($(filter clean test-current,$(MAKECMDGOALS)),)
VERSION := import sys; print(sys.version)
GIVEN := $(shell $(PYTHON) -c "$(VERSION)")
ifeq ($(GIVEN),)
$(error PYTHON=$(PYTHON) does not start)
endif
ifneq ($(wildcard $(PY)),)
ifneq ($(GIVEN),$(shell $(PY) -c "$(VERSION)"))
$(error $(VENV) has another Python than PYTHON=$(PYTHON). Remove $(VENV), or name another folder: VENV=.venv-other)
endif
endif
endif
endif

.PHONY: demo test test-current lint bench results format clean

demo: $(VENV)/.run
	$(PY) main.py --task lc-biid-digits --model fedmatch --arch alexnet --num-rounds 12 --frac-clients 0.5 --lr 5e-3

# Tests marked slow (the original's traces through the command line) are left to .ci/run: make test MARK=
MARK ?= not slow
test: $(VENV)/.dev
	$(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "$(MARK)" $(ARGS)

# A quick set of tests on the second base, in an environment of its own; needs Python 3.12 or 3.13.
QUICK := tests/networks tests/learners tests/results/test_trained.py tests/test_fidelity.py tests/workers/test_machine.py \
	tests/data/test_augment.py tests/data/test_transforms.py tests/runs/test_training.py
test-current:
	NEWEST=1 $(MAKE) test VENV=.venv-current ARGS="$(QUICK) $(ARGS)"

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.dev
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.run
	$(PY) -m benchmarks.round --arch resnet9 --task lc-biid-c10
	$(PY) -m benchmarks.round --arch resnet9 --task ls-biid-c10
	$(PY) -m benchmarks.round --arch alexnet --task lc-biid-c10 --rounds 3 --together 3 --part 1
	$(PY) -m benchmarks.round --arch alexnet --task ls-biid-c10 --rounds 3 --together 3 --part 1
	$(PY) -m benchmarks.workers --arch alexnet
	$(PY) -m benchmarks.workers --arch resnet9 --lr-signal server --rounds 1
	$(PY) -m benchmarks.startup
	$(PY) -m benchmarks.memory
	$(PY) -m benchmarks.evaluation
	$(PY) -m benchmarks.gen_data
	$(PY) -m benchmarks.scale
	$(PY) -m benchmarks.setting lr_signal=client,server arch=alexnet --rounds 5
	$(PY) -m benchmarks.setting precision=float32,bfloat16 arch=resnet9
	$(PY) -m benchmarks.setting precision=float32,bfloat16 arch=alexnet --rounds 5
	$(PY) -m benchmarks.plan
	$(PY) -m benchmarks.sizes
	$(PIP) -r requirements/ray.txt
	$(PY) -m benchmarks.transfer

# Runs whose records are missing in study/results/ (hours: --list says how many), then docs/RESULTS.md. Goes on where it stopped.
results: $(VENV)/.run
	$(PY) main.py --work-type reproduce --experiment evidence

# LOCKED=1 installs exactly the files whose hashes are in requirements/lock.txt, transitive ones too.
$(VENV)/.run: requirements.txt tools/venv.sh
	@test -x $(PY) || VENV=$(VENV) sh tools/venv.sh
	@echo "Installing requirements.txt (TensorFlow is large: a minute or two the first time)"
	@$(PIP) $(if $(LOCKED),--require-hashes -r requirements/lock.txt,-r requirements.txt)
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(PIP) -r requirements/dev.txt
	@touch $@

clean:
	rm -rf .venv .venv-current .venv-plain .venv-flower .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis
