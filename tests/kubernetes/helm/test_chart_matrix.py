"""Every graph, on both platforms, with four profiles: linted, complete, and valid on a cluster.

Kubernetes 1.31 to 1.34 strictly, the DGD by its CRD with the CEL rules, and every reference between
the objects. Golden files, which show a reviewer what a change of the chart does: one graph of each
engine whole, and of one graph the difference that each profile makes.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml
from _pytest.mark.structures import ParameterSet

from penstock.errors import ChartError
from penstock.gateway.model import parse_gateway
from penstock.gateway.policy import build_policy
from penstock.gateway.routes import objects
from penstock.graph.model import Graph
from penstock.manifests.render import Rendered, chart_path, render
from tests.support.charts import CRD, GRAPHS, OWN_IMAGE, Values, installable
from tests.support.kubernetes_schemas import builtin, crd, groups
from tests.support.kubernetes_schemas.references import set_problems

GOLDEN = Path(__file__).parents[2] / "golden"
PROFILES = Path(__file__).parents[2] / "profiles"
GATEWAY = Path(__file__).parents[3] / "k8s/gateway/gateway.yaml"
PLATFORMS = ("dynamo", "plain")
PROFILE_NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))
ENGINES = ("trtllm", "vllm", "sglang", "llamacpp", "mocker")
GOLDEN_GRAPHS = tuple(
    path
    for path in GRAPHS
    if path.stem
    in (
        "gpt-oss-120b-b200-disagg",
        "gpt-oss-120b-b200-vllm",
        "gpt-oss-120b-h200-sglang",
        "quickstart",
        "quickstart-simulated",
    )
)
WITH_PROFILES = GOLDEN_GRAPHS[:1]
SEVERITY_WARNING = 2
POOLS = ("prefill", "decode", "worker")
REQUESTS = {"owner": "keda", "min": 1, "max": 4, "signal": "requests", "target": 16}


def cases(
    graphs: Iterable[Path], profiles: Iterable[str], *marks: pytest.MarkDecorator
) -> list[ParameterSet]:
    """(graph, platform, profile)."""
    return [
        pytest.param(graph, platform, profile, id=f"{graph.stem}-{platform}-{profile}", marks=marks)
        for graph in graphs
        for platform in PLATFORMS
        for profile in profiles
    ]


GOLDEN_CASES = [*cases(GOLDEN_GRAPHS, ["plain"]), *cases(WITH_PROFILES, PROFILE_NAMES)]
CASES = [
    *cases(GRAPHS, ["plain"]),
    *cases(GOLDEN_GRAPHS, PROFILE_NAMES),
    *cases([g for g in GRAPHS if g not in GOLDEN_GRAPHS], PROFILE_NAMES, pytest.mark.nightly),
]
# Objects that a graph refers to and that its user creates.
OF_THE_USER = (
    "Secret/hf-token-secret",
    "Secret/engine-ssh",
    "PersistentVolumeClaim/model-cache",
    "ServiceAccount/cloud",
    "Role/{release}-k8s-service-discovery-role",  # the operator's
)


def test_every_graph_of_the_repository_is_valid(graph_file: Path) -> None:
    Graph.model_validate(yaml.safe_load(graph_file.read_text("utf-8")))


def profiled(graph_file: Path, platform: str, profile: str) -> Values:
    """The graph merged with the profile, as `helm install -f graph.yaml -f profile.yaml`."""
    values = installable(yaml.safe_load(graph_file.read_text("utf-8")))
    if profile != "plain":
        merge(values, yaml.safe_load((PROFILES / f"{profile}.yaml").read_text("utf-8")))
    for pool in (values[name] for name in POOLS if name in values):
        if profile == "multi-node":
            pool["nodes"] = 2
        if profile == "autoscaling":
            pool.pop("replicas", None)
            pool["autoscaling"] = REQUESTS
    if profile == "multi-node" and platform == "plain":
        del values["cluster"]["topology"]  # Grove's
        if values["engine"]["kind"] == "trtllm":
            values["cluster"]["ssh_secret"] = "engine-ssh"
    return {**values, "platform": platform}


def merge(under: Values, over: Values) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merge(under[key], value)
        else:
            under[key] = copy.deepcopy(value)


def answer(values: Values, name: str) -> Rendered | str:
    """What the chart renders, or its problems."""
    try:
        return render(values, name=name)
    except ChartError as error:
        return "".join(f"{p.place}: {p.message}. Fix: {p.fix}\n" for p in error.problems)


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "platform", "profile"), CASES)
def test_a_graph_is_valid_on_a_platform_with_a_profile(
    graph: Path, platform: str, profile: str
) -> None:
    values = profiled(graph, platform, profile)
    got = answer(values, graph.stem)
    if profile == "multi-node" and not uses_gpus(values):
        assert isinstance(got, str)
        assert re.match(r"(prefill|worker)\.nodes: is 2, but .* Fix: (Set `nodes: 1`|Remove)", got)
        return
    assert isinstance(got, Rendered), got
    assert lint(values) == []
    assert unsound(got, graph.stem) == []
    if profile == "gateway-monitoring":
        assert unserved(got, graph.stem) == []


@pytest.mark.needs("crds")
@pytest.mark.parametrize(
    ("graph", "platform", "profile"), [case for case in CASES if "dynamo" in case.values]
)
def test_the_crd_accepts_a_graph_with_a_profile(graph: Path, platform: str, profile: str) -> None:
    got = answer(profiled(graph, platform, profile), graph.stem)
    if isinstance(got, Rendered):
        (document,) = (dict(o) for o in got.objects if o["kind"] == "DynamoGraphDeployment")
        assert crd.problems(CRD, document) == []


@pytest.mark.parametrize(("graph", "platform", "profile"), GOLDEN_CASES)
def test_the_render_is_that_of_the_golden_file(
    graph: Path, platform: str, profile: str, request: pytest.FixtureRequest
) -> None:
    base = answer(profiled(graph, platform, "plain"), graph.stem)
    assert isinstance(base, Rendered)
    text, golden = base.text, GOLDEN / platform / graph.name
    if profile != "plain":
        changed = answer(profiled(graph, platform, profile), graph.stem)
        assert isinstance(changed, Rendered)
        text = difference(base.text, changed.text)
        golden = golden.parent / profile / f"{graph.stem}.diff"
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True, parents=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8"), "see the change, then pytest --update-golden"


def uses_gpus(values: Values) -> bool:
    engine = values["engine"]
    return engine["kind"] not in ("mocker", "llamacpp") and engine.get("device") != "cpu"


def difference(base: str, text: str) -> str:
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), "plain", "", "", "", 2, "")
    return "".join(f"{line}\n" for line in lines)


def lint(values: Values) -> list[Any]:
    report = helm.lint(chart_path(), values, strict=True)
    return [m for m in report["messages"] if m["severity"] >= SEVERITY_WARNING]


def unsound(rendered: Rendered, name: str) -> list[str]:
    """What a cluster would refuse, or accept although it cannot work."""
    manifests = [dict(o) for o in rendered.objects]
    externals = [pattern.format(release=name) for pattern in OF_THE_USER]
    externals += [f"DynamoGraphDeploymentScalingAdapter/{a}" for a in adapters(manifests)]
    problems = [
        f"{version}: {problem}"
        for version in builtin.VERSIONS
        for o in manifests
        if builtin.is_builtin(o)
        for problem in builtin.problems(o, version)
    ]
    problems += [
        f"{version}: {problem}"
        for version in builtin.VERSIONS
        for o in manifests
        if o["kind"] == groups.KIND
        for problem in groups.problems(o, version)
    ]
    return problems + set_problems(manifests, externals=externals)


def adapters(objects: list[Values]) -> list[str]:
    """Those that the operator creates."""
    return [
        f"{o['metadata']['name']}-{component['name']}"
        for o in objects
        if o["kind"] == "DynamoGraphDeployment"
        for component in o["spec"]["components"]
        if "scalingAdapter" in component
    ]


def unserved(rendered: Rendered, name: str) -> list[str]:
    """Backends of the gateway routes that the release does not have."""
    values = {**yaml.safe_load(GATEWAY.read_text("utf-8")), "namespace": "default", "shadow": None}
    values["backends"] = [{"release": name, "weight": 100}]
    gateway = parse_gateway(yaml.safe_dump(values), "gateway.yaml")
    (route,) = (o for o in objects(build_policy(gateway)) if o["kind"] == "HTTPRoute")
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    backend_port = (backend["name"], backend["port"])
    ports = {
        (o["metadata"]["name"], port["port"])
        for o in rendered.objects
        if o["kind"] == "Service"
        for port in o["spec"]["ports"]
    }
    # The operator's own Services: graph and component, on port 8000 for a frontend.
    ports |= {
        (f"{o['metadata']['name']}-{component['name']}", 8000)
        for o in rendered.objects
        if o["kind"] == "DynamoGraphDeployment"
        for component in o["spec"]["components"]
        if component["type"] == "frontend"
    }
    return [] if backend_port in ports else [f"no Service {backend_port}, only {sorted(ports)}"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_graphs_of_llamacpp_are_refused_without_an_image(platform: str) -> None:
    graphs = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in GRAPHS}
    with_llamacpp = {
        n: {**v, "platform": platform} for n, v in graphs.items() if installable(v) != v
    }
    assert list(with_llamacpp) == ["quickstart"]
    problems = answer(with_llamacpp["quickstart"], "quickstart")
    assert isinstance(problems, str)
    assert problems.startswith("engine.image: is unset, and NVIDIA publishes no image of llama.cpp")
    assert "Install the graph of `penstock init --example quickstart-simulated`" in problems
    assert problems.count("Fix:") == 1
    rendered = answer(installable(with_llamacpp["quickstart"]), "quickstart")
    assert isinstance(rendered, Rendered)
    assert OWN_IMAGE in rendered.text


def test_the_golden_files_are_those_of_their_cases() -> None:
    graphs = [yaml.safe_load(path.read_text("utf-8")) for path in GOLDEN_GRAPHS]
    assert {graph["engine"]["kind"] for graph in graphs} == set(ENGINES)
    files = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.*")}
    assert files == {
        f"{platform}/{graph.name}"
        if profile == "plain"
        else f"{platform}/{profile}/{graph.stem}.diff"
        for graph, platform, profile in (case.values for case in GOLDEN_CASES)
    }
