"""Every rendered value has its origin: the line of the graph that determines it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from penstock.errors import ChartError, GraphError
from penstock.graph.component import WorkerPool
from penstock.graph.load import LoadedGraph, load_graph, parse_graph
from penstock.graph.model import Graph
from penstock.graph.origin import Origin, determining_paths, origin
from penstock.manifests.deployment import Component, KnownConfig, Launch
from penstock.manifests.read import read_text
from penstock.manifests.render import render
from penstock.strict_yaml.places import Path as GraphPath
from penstock.strict_yaml.places import is_within, place_of
from penstock.strict_yaml.problems import model_at
from tests.graph.rich_graphs import COMMON, RICH
from tests.support.charts import installable

ROOT = Path(__file__).parents[2]

TRTLLM = """\
model:
  id: openai/gpt-oss-120b
  context_length: 8192
  revision: abc
  cache: {pvc: claim, mount_path: /cache}
  token_secret: hf
engine:
  kind: trtllm
  args: [--published, "3"]
  env: {A: x, B: x}
  config:
    stream_interval: 10
    kv_cache_config: {dtype: fp8, tokens_per_block: 32}
env: {A: w, C: z}
drain_timeout_s: 60
frontend:
  env: {A: f}
  args: [--busy-threshold=0.5]
prefill:
  gpus: 2
  env: {A: p}
  args: [--published, "4"]
  config:
    kv_cache_config: {free_gpu_memory_fraction: 0.8}
decode:
  gpus: 4
  nodes: 2
  config: {pipeline_parallel_size: 2, stream_interval: 1}
kv_transfer: {backend: ucx, transport: rdma, timeout_ms: 1000}
"""


def _loaded(text: str = TRTLLM) -> LoadedGraph:
    return parse_graph(text, "graph.yaml")


# With a line of None, the graph lacks the whole section. "default": the path to set, with the line
# of the nearest section that the graph has.
@pytest.mark.parametrize(
    ("place", "path", "line", "status"),
    [
        ("decode env B", "engine.env.B", 10, "set"),
        ("decode env A", "engine.env.A", 10, "set"),
        ("prefill env A", "prefill.env.A", 21, "set"),
        ("frontend env A", "frontend.env.A", 17, "set"),
        ("frontend env C", "env.C", 14, "set"),
        ("decode env HF_HOME", "model.cache.mount_path", 5, "set"),
        ("decode env UCX_TLS", "kv_transfer.transport", 29, "set"),
        ("decode env DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT", "drain_timeout_s", 15, "set"),
        ("decode args --published", "engine.args[0]", 9, "set"),
        ("prefill args --published", "prefill.args[0]", 22, "set"),
        ("frontend args --busy-threshold", "frontend.args[0]", 18, "set"),
        ("decode args --model-path", "model.id", 2, "set"),
        ("decode engine_config stream_interval", "decode.config.stream_interval", 28, "set"),
        ("prefill engine_config stream_interval", "engine.config.stream_interval", 12, "set"),
        (
            "prefill engine_config kv_cache_config dtype",
            *("engine.config.kv_cache_config.dtype", 13, "set"),
        ),
        (
            "prefill engine_config kv_cache_config free_gpu_memory_fraction",
            *("prefill.config.kv_cache_config.free_gpu_memory_fraction", 24, "set"),
        ),
        ("decode engine_config max_seq_len", "model.context_length", 3, "set"),
        ("decode engine_config tensor_parallel_size", "decode.gpus", 26, "set"),
        ("prefill engine_config disable_overlap_scheduler", "prefill", 19, "set"),
        ("decode engine_config cache_transceiver_config backend", "kv_transfer.backend", 29, "set"),
        ("frontend args --migration-limit", "frontend.migration_limit", 16, "default"),
        ("frontend args --router-mode", "router.mode", None, "default"),
        ("frontend args --router-temperature", "router.temperature", None, "default"),
        ("decode args --unheard-of", "decode.args", 25, "default"),
        ("decode env UNHEARD_OF", "decode.env.UNHEARD_OF", 25, "default"),
        ("decode engine_config max_batch_size", "decode.config.max_batch_size", 28, "default"),
        ("decode engine_config speculative_config", "speculation", None, "default"),
    ],
)
def test_a_value_has_the_line_that_determines_it(
    place: str, path: str, line: int | None, status: str
) -> None:
    result = origin(_loaded(), place.split())
    assert (result.path, result.line, result.default) == (path, line, status == "default")


def test_a_value_of_a_set_names_its_expression_and_has_no_line() -> None:
    loaded = parse_graph(TRTLLM, "graph.yaml", ["decode.gpus=8"])
    assert origin(loaded, ("decode", "engine_config", "tensor_parallel_size")) == Origin(
        path="decode.gpus", line=None, default=False, override="decode.gpus=8"
    )


def test_vllm_options_with_underscores_have_an_origin() -> None:
    text = "model: {id: x}\nengine: {kind: vllm}\nworker:\n  config: {max_num_seqs: 8}\n"
    result = origin(_loaded(text), ("worker", "engine_config", "max-num-seqs"))
    assert (result.path, result.line) == ("worker.config.max_num_seqs", 4)


EXAMPLES = sorted((ROOT / "dynamo_graphs").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trtllm", "vllm", "sglang", "mocker"])
def test_every_change_of_a_section_has_its_origin_there(name: str) -> None:
    """As the next test, with far fewer renders: the leaves of a section change together."""
    graph = parse_graph(json.dumps(RICH[name]), f"{name}.yaml")
    sections: dict[str | int, list[GraphPath]] = {}
    for leaf in _leaves(graph.values, ()):
        sections.setdefault(leaf[0], []).append(leaf)
    _hold_to_the_chart(graph, list(sections.values()))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*RICH, *(path.stem for path in EXAMPLES)])
def test_every_change_has_its_origin(name: str) -> None:
    if name not in RICH:
        loaded = load_graph(ROOT / "dynamo_graphs" / f"{name}.yaml")
        _hold_to_the_chart(loaded, [[leaf] for leaf in _leaves(loaded.values, ())])
        return
    # Sections common to all of them are changed in the first one only.
    common = set(COMMON) - {"model"} if name != "trtllm" else set()
    graph = RICH[name]
    leaves = [
        leaf
        for leaf in _leaves(graph, ())
        if leaf[0] not in common or graph[leaf[0]] != COMMON[leaf[0]]
    ]
    loaded = parse_graph(json.dumps(graph), f"{name}.yaml")
    _hold_to_the_chart(loaded, [[leaf] for leaf in leaves])


def _hold_to_the_chart(before: LoadedGraph, groups: list[list[GraphPath]]) -> None:
    """Change each group of leaves in turn, render, and compare the paths that are said to determine
    each changed place."""
    rendered = _places_of(before)
    unchanged: list[str] = []
    pending = list(groups)
    while pending:
        leaves = pending.pop()
        after, changed, now = _perturbed(before, leaves)
        if not changed and len(leaves) > 1:
            pending += [[leaf] for leaf in leaves]
            continue
        unchanged += [place_of(leaf) for leaf in leaves if leaf not in changed]
        if not changed:
            continue
        for place in {p for p in rendered.keys() | now.keys() if rendered.get(p) != now.get(p)}:
            # A flag that one list no longer holds may still stand in the other: see both graphs.
            paths = [
                place_of(path)
                for graph, places in ((before, rendered), (after, now))
                if place in places
                for path in determining_paths(graph, place)
            ]
            is_related = any(_related(place_of(leaf), path) for leaf in changed for path in paths)
            assert is_related, (changed, place, paths)
    # A leaf without another valid value cannot be changed; most can. `verify` is not deployed.
    assert len([place for place in unchanged if not place.startswith("verify.")]) <= 5, unchanged


def _related(path: str, other: str) -> bool:
    return is_within(path, other) or is_within(other, path)


def _perturbed(
    before: LoadedGraph, leaves: list[GraphPath]
) -> tuple[LoadedGraph, list[GraphPath], dict[GraphPath, Any]]:
    """The graph with other values at the leaves, the leaves that have another valid value, and the
    places; no leaf changes if the chart refuses every such graph."""
    for first in range(4 if len(leaves) == 1 else 1):
        graph, changed = before, []
        for leaf in leaves:
            for value in _other_values(before.values, leaf)[first:]:
                values = json.loads(json.dumps(graph.values))
                section = values
                for step in leaf[:-1]:
                    section = section[step]
                section[leaf[-1]] = value
                with suppress(GraphError):
                    graph = parse_graph(json.dumps(values), graph.source)
                    changed.append(leaf)
                    break
        with suppress(ChartError):
            return graph, changed, _places_of(graph)
    return before, [], {}


def _other_values(values: Any, leaf: GraphPath) -> list[Any]:
    for step in leaf:
        values = values[step]
    if isinstance(values, bool):
        return [not values]
    if isinstance(values, (int, float)):
        # Some counts must divide by another, or hold whole blocks.
        return [values + 1, values * 2, values + 1024, values / 2]
    return [*_choices(leaf, values), f"{values}x", f"{values}2"]


def _choices(leaf: GraphPath, value: str) -> list[str]:
    """Other choices of an enum; another engine would change every place of the graph."""
    model = model_at(leaf[:-1], Graph)
    if model is None or leaf == ("engine", "kind"):
        return []
    annotation = model.model_fields[str(leaf[-1])].annotation
    options = [*get_args(annotation), *(a for o in get_args(annotation) for a in get_args(o))]
    return [o for o in options if isinstance(o, str) and o != value]


def _leaves(value: Any, path: GraphPath) -> Iterator[GraphPath]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    elif path != ("engine", "kind") and value is not None:
        yield path


def _places_of(graph: LoadedGraph) -> dict[GraphPath, Any]:
    """Every variable, flag and option of the rendered deployment by its place."""
    text = render(installable(graph.values), name=graph.name).text
    (deployment,) = read_text(text, graph.source)
    return {
        (component.name, *place): value
        for component in deployment.components
        for place, value in _component(component)
    }


def _component(component: Component) -> Iterator[tuple[GraphPath, Any]]:
    (launch,) = component.launches
    for name, value in launch.env.items():
        yield ("env", name), value
    yield from _flags(launch)
    if isinstance(component.engine_config, KnownConfig):
        values = component.engine_config.values
        for path in _leaves(values, ()):
            value = values
            for step in path:
                value = value[step]
            yield ("engine_config", *path), value


def _flags(launch: Launch) -> Iterator[tuple[GraphPath, Any]]:
    """Flags with their values; of several alike the last, as a program takes them."""
    flags: dict[str, list[str]] = {}
    flag = ""
    for argument in launch.arguments:
        if argument.startswith("--"):
            flag, _, value = argument.partition("=")
            flags[flag] = [value]
        else:
            flags[flag].append(argument)
    for name, values in flags.items():
        yield ("args", name), tuple(values)


def test_the_rich_graphs_set_nearly_every_field() -> None:
    """A new field has to be in a rich graph, or origin may not know it."""
    configured = {
        place_of(("pool" if leaf[0] in ("prefill", "decode", "worker") else leaf[0], *leaf[1:]))
        for graph in RICH.values()
        for leaf in _leaves(graph, ())
    }
    missing = {
        f"{section}.{name}"
        for section in Graph.model_fields
        if (model := model_at((section,), Graph))
        for name in model.model_fields
        if not any(
            is_within(s, f"{'pool' if model is WorkerPool else section}.{name}") for s in configured
        )
    }
    # None of these is in a Deployment.
    invisible = {"resources", "pod", "annotations", "shared_memory"}
    other_objects = ("cluster.", "gateway.")
    seen = {m for m in missing if m.split(".")[1] not in invisible}
    seen = {m for m in seen if not m.startswith(other_objects)}
    known = {
        "engine.kind",
        "engine.device",  # the CPU graphs of dynamo_graphs have it
        "verify.must_pass",  # not deployed, as the next seven
        "drill.permitted_failures",
        "drill.recovery_s",
        "drill.stall_s",
        "slo.ttft_ms",
        "slo.itl_ms",
        "slo.e2e_ms",
        "hardware.gpu_hour_price",
        "hardware.product_labels",
        "hardware.gpus_per_node",
        "hardware.nodes",
        "checks.suppress",
        "router.replica_sync",
        "router.ttl_s",
    }
    assert seen <= known, f"set these in tests/graph/rich_graphs.py: {sorted(seen - known)}"
    assert known <= seen, f"remove these above: {sorted(known - seen)}"
