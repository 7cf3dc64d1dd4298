# The two commands of this repository are `make run` and `make test`. Everything below them is one script each in
# .ci/step.d, which can be run alone: `make step-unit`, or `.ci/steps fmt unit` for several.

# What each commit passes, in less than five minutes on two cores.
CHECK_STEPS = fmt lint unit tidy wasm deny

# What `make test` and .ci/run pass, quickest to fail first. `tidy` is one of the tests that `whole` runs.
TEST_STEPS = fmt lint unit doc wasm deny whole interleavings fuzz sql make-run

# Every script in .ci/step.d can be run alone.
STEPS = $(notdir $(wildcard .ci/step.d/*))

.DEFAULT_GOAL = help
.PHONY: help run check test bench proofs fuzz fmt mutants advisories $(STEPS:%=step-%)

help: ## Shows this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
	@echo "  each step alone:  $(STEPS:%=step-%)"

run: ## Starts the payments example. CHECK=1: it drives itself once and ends. ARGS=...: more arguments.
	cargo run -p keyclaim --example payments -- $(if $(CHECK),--check) $(ARGS)

check: ## The fast set, for every commit.
	@.ci/steps $(CHECK_STEPS)

test: ## Everything. The last line is 'N passed, N failed'.
	@.ci/steps $(TEST_STEPS)

bench: ## Measures, in release. ARGS=...: arguments of the bench.
	cargo run --release -p keyclaim-tests --bin bench -- $(ARGS)

proofs: ## Runs every harness. LONG=minutes: for so long, with a line each in the ledger. ARGS=...: of the program.
	cargo run -p keyclaim-tests --bin proofs -- $(if $(LONG),--minutes $(LONG)) $(ARGS)

fuzz: ## Fuzzes each target for SECONDS (60). TARGET=name: only it. RECORD=1: into the ledger. MERGE=1: into the corpus.
	@SECONDS_EACH=$(SECONDS) TARGET=$(TARGET) RECORD=$(RECORD) MERGE=$(MERGE) .ci/fuzz.sh

fmt: ## Formats the Rust sources.
	cargo fmt --all

mutants: ## Changes the pure core place by place, and fails if no test sees it. About an hour.
	@.ci/mutants

advisories: ## Known vulnerabilities of the dependencies. Needs the network, so no test waits for it.
	@.ci/steps advisories

$(STEPS:%=step-%): step-%:
	@.ci/steps $*
