# make demo: train GAT and GATv2, and show static and dynamic attention.  make test: run the tests.
# Each installs everything it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard csrc/*) $(shell find src -name "*.py") CMakeLists.txt pyproject.toml

.PHONY: demo demo-speed test check bench bench-quick gpu-check sanitize docs site chromium format clean

# GATv2, GAT with 1 and 8 heads, and DPGAT on DictionaryLookup, all with our improvements F1 and F2
# (docs/reproduction.md), which the paper does not have; the page is demo/index.html.
demo: $(VENV)/suite
	$(BIN)/dynagat run dictionary-lookup --improved --set k=10 --mechanism gatv2,gat,dpgat --seeds 0 \
	  --workers 2 --store demo/records.sqlite > /dev/null
	$(BIN)/dynagat report dictionary-lookup --store demo/records.sqlite --out demo

# Speed of our GATv2Conv and of PyG's.
demo-speed: $(VENV)/bench
	$(BIN)/python -m bench --demo

test: $(VENV)/test sanitize chromium
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal
	TRITON_INTERPRET=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal tests/gpu

check: $(VENV)/check
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/clang-format --dry-run --Werror csrc/*
	$(BIN)/pyright

format: $(VENV)/check
	$(BIN)/ruff check --fix src tests bench examples
	$(BIN)/ruff format src tests bench examples
	$(BIN)/clang-format -i csrc/*

bench: $(VENV)/bench $(VENV)/dgl
	$(BIN)/python -m bench

bench-quick: $(VENV)/bench
	$(BIN)/python -m bench --quick

# The GPU kernels without a GPU: in Triton's interpreter, and all of them compiled; writes docs/gpu.md.
gpu-check: $(VENV)/test $(VENV)/bench
	TRITON_INTERPRET=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal tests/gpu
	$(BIN)/python -m pytest tests/gpu
	$(BIN)/python -m bench.gpu

# The native code under AddressSanitizer and UBSan, called from Python.
sanitize: $(VENV)/test
	tests/sanitize.sh $(BIN)/python

# docs/findings.md and the pages of docs/results from the committed records (index.html holds them all and is not
# committed); the verdicts on the theorems, and the table of training details.
docs: $(VENV)/suite
	$(BIN)/dynagat theory --out docs/theorems > /dev/null
	$(BIN)/dynagat list --training --into docs/reproduction.md > /dev/null
	$(BIN)/dynagat report $(foreach file,$(wildcard results/*.jsonl),--records $(file)) --out docs/results \
	  --claims docs/findings.md --theorems docs/theorems/theorems.json

# The documentation as a web site, with the API reference: site/index.html.
site: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The browser in which the tests open the pages.
chromium:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }

# Torch first, in its pinned version: a looser range would fetch its CUDA build.
$(VENV)/torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch -c constraints.txt
	$(BIN)/pip install --quiet "scikit-build-core>=0.11" "nanobind>=2.4" cmake ninja
	touch $@

# DGL for the bench, if it installs; without its requirements, which would replace torch.
$(VENV)/dgl: $(VENV)/bench
	-$(BIN)/pip install --quiet --no-deps dgl==1.1.3
	touch $@

# The package with one of its extras; build/ keeps the compiled native module.
$(VENV)/%: $(VENV)/torch $(SOURCES)
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) build
