"""Every graph, on both platforms, with four profiles: linted, complete, and valid on a cluster.

Kubernetes 1.31 to 1.34 strictly, the DGD by its CRD with the CEL rules, and every reference between
the objects. Golden: the plain profile whole, the others as the difference they make.
"""

from __future__ import annotations

import copy
import difflib
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

from penstock.errors import ChartError
from penstock.gateway.load import parse_gateway
from penstock.gateway.policy import build_policy
from penstock.gateway.routes import objects
from penstock.graph.model import Graph
from penstock.manifests.render import Rendered, chart_path, render
from tests.support.charts import CRD, GRAPHS, OWN_IMAGE, Values, installable
from tests.support.kubernetes_schemas import builtin, crd, groups
from tests.support.kubernetes_schemas.references import set_problems

pytest.importorskip("kubernetes_validate", reason="not installed: it is in the dev group")
pytest.importorskip("cel", reason="common-expression-language is not installed")

GOLDEN = Path(__file__).parents[2] / "golden"
PROFILES = Path(__file__).parents[2] / "profiles"
GATEWAY = Path(__file__).parents[3] / "k8s/gateway/gateway.yaml"
PLATFORMS = ("dynamo", "plain")
NAMES = ("plain", *sorted(path.stem for path in PROFILES.glob("*.yaml")))
MARKED_NAMES = ("plain", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:]))
SEVERITY_WARNING = 2
POOLS = ("prefill", "decode", "worker")
REQUESTS = {"owner": "keda", "min": 1, "max": 4, "signal": "requests", "target": 16}
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
@pytest.mark.parametrize("profile", MARKED_NAMES)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_graph_is_valid_on_a_platform_with_a_profile(
    graph_file: Path, platform: str, profile: str, request: pytest.FixtureRequest
) -> None:
    values = profiled(graph_file, platform, profile)
    got = answer(values, graph_file.stem)
    text = got if isinstance(got, str) else got.text
    base = answer(profiled(graph_file, platform, "plain"), graph_file.stem)
    assert isinstance(base, Rendered)
    if profile == "plain":
        golden = GOLDEN / graph_file.name if platform == "dynamo" else None
        golden = golden or GOLDEN / platform / graph_file.name
    else:
        golden = GOLDEN / platform / profile / f"{graph_file.stem}.diff"
        text = text if isinstance(got, str) else difference(base.text, text)
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True, parents=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8"), "see the change, then pytest --update-golden"
    if isinstance(got, Rendered):
        assert lint(values) == []
        assert unsound(got, graph_file.stem) == []
    if isinstance(got, Rendered) and profile == "gateway-monitoring":
        assert unserved(got, graph_file.stem) == []


def difference(base: str, text: str) -> str:
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), "plain", "", "", "", 2, "")
    return "".join(f"{line}\n" for line in lines)


def lint(values: Values) -> list[Any]:
    report = helm.lint(chart_path(), values, strict=True)
    return [m for m in report["messages"] if m["severity"] >= SEVERITY_WARNING]


def unsound(rendered: Rendered, name: str) -> list[str]:
    """What a cluster would refuse, or accept although it cannot work."""
    made = [dict(o) for o in rendered.objects]
    externals = [pattern.format(release=name) for pattern in OF_THE_USER]
    externals += [f"DynamoGraphDeploymentScalingAdapter/{a}" for a in adapters(made)]
    found = [
        f"{version}: {problem}"
        for version in builtin.VERSIONS
        for o in made
        if builtin.is_builtin(o)
        for problem in builtin.problems(o, version)
    ]
    found += [
        f"{version}: {problem}"
        for version in builtin.VERSIONS
        for o in made
        if o["kind"] == groups.KIND
        for problem in groups.problems(o, version)
    ]
    found += set_problems(made, externals=externals)
    if CRD.exists():
        found += [
            f"{place}: {message}"
            for o in made
            if o["kind"] == "DynamoGraphDeployment"
            for place, message in crd.problems(CRD, o)
        ]
    return found


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
    own = {n: {**v, "platform": platform} for n, v in graphs.items() if installable(v) != v}
    assert list(own) == ["quickstart"]
    problems = answer(own["quickstart"], "quickstart")
    assert isinstance(problems, str)
    assert problems.startswith("engine.image: is unset, and NVIDIA publishes no image of llama.cpp")
    assert "Install the graph of `penstock init --example quickstart-simulated`" in problems
    assert problems.count("Fix:") == 1
    rendered = answer(installable(own["quickstart"]), "quickstart")
    assert isinstance(rendered, Rendered)
    assert OWN_IMAGE in rendered.text


def test_every_golden_file_has_a_graph_and_a_profile() -> None:
    graphs = {path.stem for path in (GOLDEN.parents[1] / "dynamo_graphs").glob("*.yaml")}
    for path in GOLDEN.rglob("*.*"):
        assert path.stem in graphs, path
        assert path.parent.name in ("golden", "plain", *NAMES), path
