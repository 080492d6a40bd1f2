"""The chart's schema and defaults match the model, as checked with Helm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import pytest
import yaml

from penstock.errors import GraphError
from penstock.graph import generate
from penstock.graph.cluster import CacheClaim, ModelCache, Topology
from penstock.graph.component import Autoscaling, Planner, WorkerPool
from penstock.graph.gateway import GatewaySection, Limits, RateLimit, SectionKeys, Timeouts, Tls
from penstock.graph.generate import EXAMPLES, pool_defaults, reference_markdown, values_yaml
from penstock.graph.load import parse_graph
from penstock.graph.model import Graph, Speculation, Tracing
from penstock.graph.schema import values_schema
from penstock.manifests.source import render_graph
from penstock.strict_yaml.base import Spec
from tests.graph.texts import HEAD, SMALL

ROOT = Path(__file__).parents[2]
EAGLE = "{method: eagle3, draft_model: x}"


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> helm_python.Chart:
    """A chart of the generated values and schema alone, without our templates' own checks."""
    folder = tmp_path_factory.mktemp("chart")
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: bare, version: 0.1.0}")
    files = generate.generated_files()
    for name in ("values.yaml", "values.schema.json"):
        (folder / name).write_text(files[f"helm/penstock/{name}"])
    (folder / "templates").mkdir()
    (folder / "templates" / "values.yaml").write_text("{{ toJson .Values }}")
    return helm_python.Chart.load(folder)


def _render(chart: helm_python.Chart, text: str) -> dict[str, Any]:
    values = helm_python.values_from_yaml(text)
    rendered = chart.render(values, name="graph", namespace="default")
    return dict(yaml.safe_load(next(iter(rendered.values()))))


GOOD = [
    SMALL,
    HEAD + "prefill: {}\ndecode: {replicas: 0}\n",
    HEAD + "prefill: {}\ndecode: {}\nworker: null\n",
    HEAD + "worker: {gpus: null, env: {A: x}, pod: {tolerations: [{operator: Exists}]}}\n",
    HEAD + f"worker: {{}}\nspeculation: {EAGLE}\n",
    "model: {id: x, cache: {pvc: claim}}\nengine: {kind: vllm}\nworker: {}\n",
    HEAD + "worker: {}\nrouter: {mode: random, min_initial_workers: 1}\n",
    HEAD + "worker: {config: {a: [1, {b: null}]}, resources: {cpu: 500m, memory: 8Gi}}\n",
]
BAD = [
    HEAD,
    "worker: {}\n",
    "model: {}\nengine: {kind: trtllm}\nworker: {}\n",
    "model: {id: x}\nengine: {}\nworker: {}\n",
    "model: {id: ''}\nengine: {kind: trtllm}\nworker: {}\n",
    "model: {id: x}\nengine: {kind: tgi}\nworker: {}\n",
    HEAD + "prefill: {}\n",
    HEAD + "decode: {}\n",
    HEAD + "prefill: {}\nworker: {}\n",
    HEAD + "prefill: {}\ndecode: {}\nworker: {}\n",
    HEAD + "worker: {replica: 1}\n",
    HEAD + "worker: {replicas: -1}\n",
    HEAD + "worker: {replicas: '1'}\n",
    HEAD + "worker: {nodes: null}\n",
    HEAD + "worker: {replicas: 2, autoscaling: {owner: external}}\n",
    SMALL + "frontend: {replicas: 2, autoscaling: {owner: external}}\n",
    HEAD + "worker: {env: {A: 1}}\n",
    HEAD + "worker: {env: {A B: x}}\n",
    HEAD + "worker: {args: [1]}\n",
    HEAD + "worker: {config: 1}\n",
    HEAD + "worker: {pod: {containers: [{name: main}]}}\n",
    HEAD + "worker: {resources: {cpu: lots}}\n",
    SMALL + "frontend: {port: null}\n",
    SMALL + "frontend: null\n",
    SMALL + "router: {kv_events: null}\n",
    SMALL + "frontend: {port: 0}\n",
    SMALL + "frontend: {port: 65536}\n",
    SMALL + "router: {mode: x}\n",
    SMALL + "router: {mode: random, ttl_s: 3}\n",
    SMALL + "router: {ttl_s: 0}\n",
    SMALL + "speculation: {method: eagle3}\n",
    SMALL + "speculation: {method: ngram, draft_model: x}\n",
    SMALL + "pod: {terminationGracePeriodSeconds: 1}\n",
    SMALL + "drain_timeout_s: 0\n",
    SMALL + "unknown: 1\n",
    SMALL.replace("trtllm", "mocker") + f"speculation: {EAGLE}\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_helm_accepts_what_the_model_accepts(chart: helm_python.Chart, text: str) -> None:
    parse_graph(text, "graph.yaml")
    _render(chart, text)


@pytest.mark.parametrize("text", BAD)
def test_helm_refuses_what_the_model_refuses(chart: helm_python.Chart, text: str) -> None:
    with pytest.raises(GraphError):
        parse_graph(text, "graph.yaml")
    with pytest.raises(helm_python.HelmValuesError):
        _render(chart, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "missing properties 'prefill', 'decode'"),
        (HEAD + "worker: {replica: 1}\n", "at '/worker': additional properties 'replica' not"),
        (HEAD + "worker: {gpus: x}\n", "at '/worker/gpus': got string, want integer or null"),
        (SMALL + "router: {mode: x}\n", "at '/router/mode': value must be one of 'kv', "),
        (SMALL + "frontend: {port: null}\n", "at '/frontend': missing property 'port'"),
        (SMALL + "decode: {}\n", "at '/decode': got object, want null"),
    ],
)
def test_the_errors_of_helm_name_the_place(
    chart: helm_python.Chart, text: str, message: str
) -> None:
    with pytest.raises(helm_python.HelmValuesError) as caught:
        _render(chart, text)
    printed = str(caught.value).replace("want null or integer", "want integer or null")
    assert message in printed


def test_the_chart_may_be_a_dependency_of_another_chart(chart: helm_python.Chart) -> None:
    assert "global" in _render(chart, SMALL + "global: {registry: x}\n")


def test_the_schema_is_valid_and_allows_no_additional_properties() -> None:
    schema = values_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False
        assert all(prop.get("description") for prop in part["properties"].values())


def test_merged_defaults_are_the_models_defaults(chart: helm_python.Chart) -> None:
    text = HEAD + "prefill: {}\ndecode: {}\n"
    merged = Graph.model_validate(_render(chart, text))
    assert merged == Graph.model_validate(yaml.safe_load(text))


def test_pool_defaults_are_the_models_defaults() -> None:
    defaults = pool_defaults()
    assert WorkerPool.model_validate(defaults["pool"]) == WorkerPool()
    assert set(defaults["pool"]) == {n for n, v in WorkerPool() if v is not None}
    drafted = {"method": "ngram", **defaults["speculation"]}
    assert Speculation.model_validate(drafted) == Speculation(method="ngram")
    external = {"owner": "external", **defaults["autoscaling"]}
    assert set(external) == {n for n, v in Autoscaling(owner="external") if v is not None}
    planner = {"max_gpus": 1, **defaults["planner"]}
    assert Planner.model_validate(planner) == Planner(max_gpus=1)
    cache = {"pvc": "x", **defaults["model_cache"]}
    assert ModelCache.model_validate(cache) == ModelCache(pvc="x")
    assert GatewaySection.model_validate(defaults["gateway"]) == GatewaySection()
    rate = {"requests": 1, "unit": "hour"}
    assert RateLimit.model_validate(rate | defaults["rate_limit"]) == RateLimit.model_validate(rate)


def test_pools_are_not_in_the_values_of_the_chart() -> None:
    assert yaml.safe_load(values_yaml()).keys().isdisjoint({"prefill", "decode", "worker"})


# Their fields are not in values.yaml, where they would exist in every graph.
OF_GRAPHS_THAT_NAME_THEM = (
    Autoscaling,
    CacheClaim,
    GatewaySection,
    Limits,
    ModelCache,
    Planner,
    RateLimit,
    SectionKeys,
    Speculation,
    Timeouts,
    Tls,
    Topology,
    Tracing,
    WorkerPool,
)


def test_values_and_reference_name_every_field_with_its_description() -> None:
    reference = reference_markdown()
    values = " ".join(values_yaml().replace("#", " ").split())
    for model in _sections(Graph):
        for name, field in model.model_fields.items():
            assert field.description
            assert f"`{name}`" in reference
            assert field.description in reference
            if model not in OF_GRAPHS_THAT_NAME_THEM:
                assert field.description in values


def _sections(model: type[Spec]) -> Iterator[type[Spec]]:
    yield model
    for inner in Spec.__subclasses__():
        of_graph = inner.__module__.startswith("penstock.graph.")  # a gateway has parts too
        if inner is not Graph and inner.model_fields and of_graph:
            yield inner


def test_no_line_of_a_generated_yaml_is_longer_than_100() -> None:
    assert max(map(len, values_yaml().splitlines())) <= 100


def test_every_generated_file_says_so_on_line_1() -> None:
    for text in generate.generated_files().values():
        assert "Generated by `python -m penstock.graph.generate`" in text.splitlines()[0]


def test_the_generated_files_are_up_to_date() -> None:
    assert generate.stale(generate.generated_files(), ROOT) == [], "run `make generate`"


def test_stale_files_are_written_once_and_named_by_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*flags: str) -> int:
        files = {"values.yaml": "new", "docs/a.json": "{}"}
        return generate.run([str(tmp_path), *flags], files, "penstock.graph.generate", "about")

    assert run() == 0
    assert capsys.readouterr().out.count("wrote") == 2
    assert run("--check") == run() == 0
    stale = tmp_path / "values.yaml"
    stale.write_text("old")
    assert run("--check") == 1
    assert stale.read_text() == "old"
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"{stale}: stale. Fix: Run `make generate`.\n")


@pytest.mark.parametrize("section", EXAMPLES)
def test_an_example_of_values_yaml_is_part_of_a_valid_graph(section: str) -> None:
    assert "\n".join(f"#   {line}" for line in EXAMPLES[section].splitlines()) in values_yaml()
    example = yaml.safe_load(EXAMPLES[section])
    values = {**yaml.safe_load(HEAD), **example}
    if not {"prefill", "worker"} & set(values):
        values |= {"worker": {}}
    loaded = parse_graph(yaml.safe_dump(values), "graph.yaml")
    assert set(example) <= set(loaded.graph.model_fields_set)
    assert render_graph(loaded).objects
