"""Every rendered value has its origin: the line of the graph that determines it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from penstock.errors import ChartError, GraphError
from penstock.graph.component import WorkerPool
from penstock.graph.load import LoadedGraph, load_graph, parse_graph
from penstock.graph.model import Graph
from penstock.graph.origin import Origin, origin
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


@pytest.mark.parametrize(
    ("place", "path", "line"),
    [
        (("decode", "gpus"), "decode.gpus", 26),
        (("decode", "nodes"), "decode.nodes", 27),
        (("decode", "grace_s"), "drain_timeout_s", 15),
        (("decode", "env", "B"), "engine.env.B", 10),
        (("decode", "env", "A"), "engine.env.A", 10),
        (("prefill", "env", "A"), "prefill.env.A", 21),
        (("frontend", "env", "A"), "frontend.env.A", 17),
        (("frontend", "env", "C"), "env.C", 14),
        (("decode", "env", "HF_HOME"), "model.cache.mount_path", 5),
        (("decode", "env", "UCX_TLS"), "kv_transfer.transport", 29),
        (("decode", "args", "--published"), "engine.args[0]", 9),
        (("prefill", "args", "--published"), "prefill.args[0]", 22),
        (("frontend", "args", "--busy-threshold"), "frontend.args[0]", 18),
        (("decode", "args", "--model-path"), "model.id", 2),
        (("decode", "secrets"), "model.token_secret", 6),
        (("decode", "engine_config", "stream_interval"), "decode.config.stream_interval", 28),
        (("prefill", "engine_config", "stream_interval"), "engine.config.stream_interval", 12),
        (
            ("prefill", "engine_config", "kv_cache_config", "dtype"),
            "engine.config.kv_cache_config.dtype",
            13,
        ),
        (
            ("prefill", "engine_config", "kv_cache_config", "free_gpu_memory_fraction"),
            "prefill.config.kv_cache_config.free_gpu_memory_fraction",
            24,
        ),
        (("decode", "engine_config", "max_seq_len"), "model.context_length", 3),
        (("decode", "engine_config", "tensor_parallel_size"), "decode.gpus", 26),
        (("prefill", "engine_config", "disable_overlap_scheduler"), "prefill", 19),
        (
            ("decode", "engine_config", "cache_transceiver_config", "backend"),
            "kv_transfer.backend",
            29,
        ),
    ],
)
def test_a_configured_value_has_its_line(place: GraphPath, path: str, line: int) -> None:
    found = origin(_loaded(), place)
    assert (found.path, found.line, found.default) == (path, line, False)


@pytest.mark.parametrize(
    ("place", "path", "line"),
    [
        (("decode", "replicas"), "decode.replicas", 25),
        (("decode", "image"), "decode.image", 25),
        (("frontend", "args", "--migration-limit"), "frontend.migration_limit", 16),
        (("frontend", "args", "--router-mode"), "router.mode", None),
        (("decode", "args", "--unheard-of"), "decode.args", 25),
        (("decode", "env", "UNHEARD_OF"), "decode.env.UNHEARD_OF", 25),
        (("decode", "engine_config", "max_batch_size"), "decode.config.max_batch_size", 28),
        (("decode", "engine_config", "speculative_config"), "speculation", None),
    ],
)
def test_a_default_has_the_path_to_set_and_the_nearest_line(
    place: GraphPath, path: str, line: int | None
) -> None:
    found = origin(_loaded(), place)
    assert (found.path, found.line, found.default) == (path, line, True)


def test_a_value_from_several_leaves_names_all_of_them() -> None:
    found = origin(_loaded(), ("decode", "engine_config", "tensor_parallel_size"))
    assert found.also == ("decode.nodes", "decode.config.pipeline_parallel_size")


def test_a_value_of_a_set_names_its_expression_and_has_no_line() -> None:
    loaded = parse_graph(TRTLLM, "graph.yaml", ["decode.replicas=7"])
    assert origin(loaded, ("decode", "replicas")) == Origin(
        path="decode.replicas", line=None, default=False, override="decode.replicas=7"
    )


def test_vllm_options_with_underscores_have_an_origin() -> None:
    text = "model: {id: x}\nengine: {kind: vllm}\nworker:\n  config: {max_num_seqs: 8}\n"
    found = origin(_loaded(text), ("worker", "engine_config", "max-num-seqs"))
    assert (found.path, found.line) == ("worker.config.max_num_seqs", 4)


EXAMPLES = sorted((ROOT / "dynamo_graphs").glob("*.yaml"))
# Each graph renders its chart some thirty times. CI has one for each engine.
IN_CI = ("trtllm", "vllm", "sglang", "mocker")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in IN_CI else [pytest.mark.nightly]) for n in RICH]
)
def test_every_change_in_a_rich_graph_has_its_origin(name: str) -> None:
    # Sections common to all of them are changed in the first one only.
    common = set(COMMON) - {"model"} if name != "trtllm" else set()
    graph = RICH[name]
    leaves = [
        leaf
        for leaf in _leaves(graph, ())
        if leaf[0] not in common or graph[leaf[0]] != COMMON[leaf[0]]
    ]
    _hold_to_the_chart(parse_graph(json.dumps(graph), f"{name}.yaml"), leaves)


@pytest.mark.nightly
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_change_in_an_example_has_its_origin(path: Path) -> None:
    loaded = load_graph(path)
    _hold_to_the_chart(loaded, list(_leaves(loaded.values, ())))


def _hold_to_the_chart(before: LoadedGraph, leaves: list[GraphPath]) -> None:
    """Change each leaf in turn, render, and compare the origin of each changed place."""
    rendered = _places_of(before)
    unchanged = []
    for leaf in leaves:
        perturbed = _perturbed(before, leaf)
        if perturbed is None:
            unchanged.append(place_of(leaf))
            continue
        after, now = perturbed
        for place in {p for p in rendered.keys() | now.keys() if rendered.get(p) != now.get(p)}:
            # A flag that one list no longer holds may still stand in the other: see both graphs.
            found = [origin(before, place)] if place in rendered else []
            found += [origin(after, place)] if place in now else []
            decided_by = [path for o in found for path in (o.path, *o.also)]
            assert any(_related(place_of(leaf), path) for path in decided_by), (leaf, place, found)
    # A leaf without another valid value cannot be changed; most can. `verify` is not deployed.
    assert len([place for place in unchanged if not place.startswith("verify.")]) <= 5, unchanged


def _related(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)


def _perturbed(
    graph: LoadedGraph, leaf: GraphPath
) -> tuple[LoadedGraph, dict[GraphPath, Any]] | None:
    """The graph with another value at the leaf, and its places; None where no other is valid."""
    for value in _others(graph.values, leaf):
        values = json.loads(json.dumps(graph.values))
        section = values
        for step in leaf[:-1]:
            section = section[step]
        section[leaf[-1]] = value
        try:
            after = parse_graph(json.dumps(values), graph.source)
            return after, _places_of(after)
        except (GraphError, ChartError):
            continue
    return None


def _others(values: Any, leaf: GraphPath) -> list[Any]:
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
    """Every value of the rendered deployment by its place."""
    (deployment,) = read_text(render(installable(graph.values), name=graph.name).text, graph.source)
    found: dict[GraphPath, Any] = {}
    for component in deployment.components:
        for place, value in _component(component):
            found[(component.name, *place)] = value
    return found


def _component(component: Component) -> Iterator[tuple[GraphPath, Any]]:
    for name in ("replicas", "gpus", "nodes", "image", "grace_s", "engine", "role"):
        yield (name,), getattr(component, name)
    (launch,) = component.launches
    yield ("secrets",), launch.secrets
    for name, value in launch.env.items():
        yield ("env", name), value
    yield from _flags(launch)
    if isinstance(component.engine_config, KnownConfig):
        values = component.engine_config.values
        for path in _leaves(values, ()):
            found: Any = values
            for step in path:
                found = found[step]
            yield ("engine_config", *path), found


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
    """A new field of the model has to appear above, or origin may not know it."""
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
    assert seen == {
        "engine.kind",
        "engine.device",  # the CPU graphs of dynamo_graphs have it
        "verify.must_pass",  # not deployed, as the next six
        "drill.permitted_failures",
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


def test_the_line_is_that_of_the_text_a_user_sees() -> None:
    loaded = load_graph(EXAMPLES[0])
    for name in loaded.graph.pools:
        found = origin(loaded, (name, "replicas"))
        if found.line is not None and not found.default:
            line = loaded.text.splitlines()[found.line - 1]
            assert yaml.safe_load(line.strip())["replicas"] is not None
