"""Releases of the chart of commit 75877ce are upgraded with the present chart.

`helm/penstock/files/upgrades.yaml` announces every change of pods. A change of the chart that is
not announced there fails here, for all shipped graphs, platforms and PROFILES.
"""

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster import helm_writer, report
from penstock.cluster.diff import Action, Diff, diff
from penstock.errors import ChartError
from penstock.graph.load import load_graph
from penstock.graph.renamed_keys import RENAMED_KEYS
from penstock.helm import ReleaseTarget
from penstock.manifests.render import chart_path, render
from tests.support.charts import ROOT, Values
from tests.support.emulated_cluster.released import NAME, Cluster
from tests.support.released_charts.pack import unpack

OLD = "75877ce"
PLATFORMS = ("dynamo", "plain")
BUSY = {"router": {"active_decode_blocks_threshold": 0.9}}
ROUTER = {"router": {"overlap_score_credit": 0.5, "prefill_load_scale": 2, "temperature": 0.1}}
DOWNLOAD: Values = {
    "model": {
        "revision": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a",
        "cache": {"pvc": "models", "create": {"size": "200Gi"}, "download": True},
    },
    "cluster": {"etcd": {"replicas": 3}, "network_policy": {"enabled": True}},
}
# Merged over each graph. A graph that the old chart refuses with a profile is left out.
PROFILES: dict[str, Values] = {
    "none": {},
    "busy": BUSY,
    "router": ROUTER,
    "download": DOWNLOAD,
    "nodes": {},  # two nodes per replica
}
# The only new object: by this Service, workers find the frontends.
FRONTENDS = ("Service", f"{NAME}-frontends", Action.CREATED)
STATUS = "env.DYN_HTTP_OVERLOAD_STATUS_CODE"


def merged(values: Any, patch: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    return {**values, **{k: merged(values.get(k), v) for k, v in patch.items()}}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart and the graphs of the old version."""
    return unpack(OLD, tmp_path_factory.mktemp(OLD))


def graphs_of(old: Path) -> list[str]:
    return sorted(path.name for path in (old / "dynamo_graphs").glob("*.yaml"))


def values_of(old: Path, graph: str, platform: str, profile: str) -> Values:
    """The values of an old graph with a profile."""
    values: Values = yaml.safe_load((old / "dynamo_graphs" / graph).read_text())
    values = {**merged(values, PROFILES[profile]), "platform": platform}
    return with_two_nodes(values) if profile == "nodes" else values


def with_two_nodes(values: Values) -> Values:
    gpus = values.get("hardware", {}).get("gpus_per_node", 8)
    pools = {"prefill", "decode", "worker"} & values.keys()
    values = {**values, **{p: {**(values[p] or {}), "nodes": 2, "gpus": gpus} for p in pools}}
    if values["platform"] == "plain" and values["engine"]["kind"] == "trtllm":
        return merged(values, {"cluster": {"ssh_secret": "ssh"}})
    return values


def upgrade_of(old: Path, graph: str, platform: str, profile: str) -> Diff | None:
    """None if the old chart refuses the graph."""
    values = values_of(old, graph, platform, profile)
    try:
        before = render(values, name=NAME, chart=old / "helm" / "penstock").objects
    except ChartError:
        return None
    return diff(before, render(values, name=NAME).objects)


def unexplained(change: Diff) -> Iterator[str]:
    """Changes of pods and objects that the chart does not announce."""
    others = [o for o in change.objects if (o.kind, o.name, o.action) != FRONTENDS]
    yield from (f"{o.kind} {o.name}: {o.action} {o.changes}" for o in others)
    for component in change.components:
        if component.action not in (Action.UNCHANGED, Action.RESTARTED):
            yield f"{component.name}: {component.action}"
        announced = {path for entry in report.chart_changes() for path in entry.explains(component)}
        yield from (f"{component.name}: {c}" for c in component.changes if c.path not in announced)


def announced(old: Path, platform: str, profile: str, graphs: list[str]) -> int:
    """How many of the graphs the old chart accepts; fails if a change of pods is not announced."""
    rendered = 0
    for graph in graphs:
        change = upgrade_of(old, graph, platform, profile)
        if change is None:
            continue
        rendered += 1
        assert not [*unexplained(change)], graph
        has_changes = profile in ("busy", "nodes", "router") or platform == "plain"
        assert change.is_empty or has_changes, graph
    return rendered


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_chart_announces_every_change_of_pods(old: Path, platform: str, profile: str) -> None:
    graphs = graphs_of(old)
    assert announced(old, platform, profile, graphs if profile == "none" else graphs[::4])


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_it_does_so_for_all_graphs(old: Path, platform: str, profile: str) -> None:
    least = {"none": 22, "busy": 22, "router": 18, "download": 16, "nodes": 12}[profile]
    assert announced(old, platform, profile, graphs_of(old)) >= least


def test_a_graph_without_announced_changes_stays_as_it_is(old: Path) -> None:
    change = upgrade_of(old, "quickstart.yaml", "dynamo", "none")
    assert change is not None
    assert change.is_empty


@pytest.mark.slow
def test_every_announced_change_happens(old: Path) -> None:
    """An entry that no release of the old version needs any more is removed."""
    explained = {
        entry.reason
        for platform, profile in (("dynamo", "busy"), ("dynamo", "router"), ("plain", "nodes"))
        for component in restarted(old, platform, profile)
        for entry in report.chart_changes()
        if entry.explains(component)
    }
    assert explained == {entry.reason for entry in report.chart_changes()}


def restarted(old: Path, platform: str, profile: str) -> list[Any]:
    change = upgrade_of(old, "gpt-oss-120b-b200-disagg.yaml", platform, profile)
    assert change is not None
    return [c for c in change.components if c.action is Action.RESTARTED]


def test_the_changelog_announces_every_change() -> None:
    text = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    assert f"Upgrading from {OLD}" in text
    for entry in report.chart_changes():
        assert " ".join(entry.reason.split()) in text.replace("`", ""), entry.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "profile", "component"),
    [
        ("dynamo", "busy", "frontends"),
        ("dynamo", "router", "frontends"),
        ("plain", "nodes", "workers"),
    ],
)
def test_the_notes_announce_a_change_after_an_upgrade(
    old: Path, platform: str, profile: str, component: str
) -> None:
    values = values_of(old, "gpt-oss-120b-b200-disagg.yaml", platform, profile)
    text = notes(values, is_upgrade=True)
    unaffected = values_of(old, "gpt-oss-120b-b200-disagg.yaml", platform, "none")
    always = announcements(notes(unaffected, is_upgrade=True))
    assert len(always) == (2 if platform == "plain" else 0)
    (line,) = announcements(text) - always
    assert f"- the {component}, if it was commit {OLD} or older: " in line
    assert OLD not in notes(values, is_upgrade=False)


def announcements(text: str) -> set[str]:
    return {line for line in text.splitlines() if OLD in line}


def notes(values: Values, *, is_upgrade: bool) -> str:
    with helm_python.Chart.load(chart_path()) as chart:
        rendered = chart.render(values, name=NAME, namespace="default", is_upgrade=is_upgrade)
    return str(rendered["penstock/templates/NOTES.txt"])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_another_version_of_the_same_chart_restarts_no_pod(tmp_path: Path, platform: str) -> None:
    newer = tmp_path / "penstock"
    shutil.copytree(chart_path(), newer)
    text = (newer / "Chart.yaml").read_text()
    version = yaml.safe_load(text)["version"]
    (newer / "Chart.yaml").write_text(text.replace(version, "99.1.2"))
    values = yaml.safe_load((ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text())
    values["platform"] = platform
    rendered = render(values, name=NAME, chart=newer)
    assert "99.1.2" in rendered.text
    assert diff(render(values, name=NAME).objects, rendered.objects).is_empty


# ---- on an emulated cluster ----


def install_old(cluster: Cluster, old: Path, **sections: Any) -> None:
    """Install the quickstart of the old version with Helm and the old chart."""
    values = merged(yaml.safe_load((old / "dynamo_graphs" / "quickstart.yaml").read_text()), {})
    cluster.graph.write_text(yaml.safe_dump(merged(values, sections)))
    target = ReleaseTarget(name=NAME, namespace="default", kubeconfig=cluster.kubeconfig)
    chart = old / "helm" / "penstock"
    values = yaml.safe_load(cluster.graph.read_text())
    helm_writer.write("install", target, chart=chart, values=values)
    cluster.wait_until(lambda: cluster.run("status", "--cluster")[0] == 0)


def pods(cluster: Cluster) -> dict[str, str]:
    """The component of each pod by its uid."""
    listed = cluster.api.store.of_kind("Pod")
    return {p["metadata"]["uid"]: p["metadata"]["labels"]["penstock/component"] for p in listed}


def apply_twice(cluster: Cluster) -> dict[str, set[str]]:
    """The components whose pods are replaced by the first and by the second `apply`."""
    replaced = {}
    for run in ("first", "second"):
        before = pods(cluster)
        cluster.expect(0, "apply", "--yes")
        after = pods(cluster)
        replaced[run] = {before[uid] for uid in before.keys() - after.keys()}
        assert {after[uid] for uid in after.keys() - before.keys()} == replaced[run]
    return replaced


def test_an_unaffected_release_is_upgraded_without_restarts(fresh: Cluster, old: Path) -> None:
    install_old(fresh, old)
    assert "no changes" in fresh.expect(0, "diff")
    fresh.edit(frontend={"replicas": 2})  # a change, so that Helm writes with the present chart
    before = pods(fresh)
    assert "chart:" not in fresh.expect(0, "apply", "--yes")
    assert before.keys() <= pods(fresh).keys()
    assert apply_twice(fresh) == {"first": set(), "second": set()}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_an_affected_release_restarts_what_diff_says(
    fresh: Cluster, old: Path, platform: str
) -> None:
    install_old(fresh, old, platform=platform, **BUSY)
    output = fresh.expect(EXIT_CHANGED, "diff")
    assert (
        f"chart: frontend: {STATUS} changed in the chart: in graphs with router.active_" in output
    )
    assert "the default of frontend.overload_status is 429 instead of Dynamo's 529" in output
    restarted = {"frontend"} if platform == "dynamo" else {"frontend", "prefill", "decode"}
    assert output.count("restarted") == len(restarted)
    assert apply_twice(fresh) == {"first": restarted, "second": set()}
    fresh.expect(0, "diff")


def test_a_reason_is_given_to_programs(fresh: Cluster, old: Path) -> None:
    install_old(fresh, old, **BUSY)
    _, output = fresh.run("diff", "--json")
    assert [line.split(":")[0] for line in yaml.safe_load(output)["chart_changes"]] == ["frontend"]


# ---- keys ----


@functools.cache
def _keys(schema: str) -> dict[str, tuple[object, ...]]:
    """The allowed values (enum) by dotted path of each key in a chart's schema."""
    keys: dict[str, tuple[object, ...]] = {}
    content = yaml.safe_load(schema)

    def walk(node: Any, path: str, depth: int) -> None:
        if not isinstance(node, dict) or depth > 12:
            return
        if "$ref" in node:
            node = content["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        for choice in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
            walk(choice, path, depth + 1)
        if path:
            keys[path] = (*keys.get(path, ()), *node.get("enum", ()))
        for name, inner in node.get("properties", {}).items():
            walk(inner, f"{path}.{name}".lstrip("."), depth + 1)

    walk(content, "", 0)
    return keys


def test_every_old_key_still_exists_or_says_its_new_name(old: Path) -> None:
    before = _keys((old / "helm" / "penstock" / "values.schema.json").read_text())
    after = _keys((chart_path() / "values.schema.json").read_text())
    assert len(before) > 100
    gone = {key for key in before.keys() - after.keys() if key not in RENAMED_KEYS}
    assert gone == set()
    fewer = {key for key, enum in before.items() if set(enum) - set(after.get(key, enum))}
    assert fewer == set()


@pytest.mark.filterwarnings("ignore::penstock.graph.renamed_keys.DeprecatedKeyWarning")
def test_old_graphs_are_read(old: Path) -> None:
    for graph in graphs_of(old):
        assert load_graph(old / "dynamo_graphs" / graph)


def test_check_says_what_to_write_instead_of_an_old_key(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = old / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml"
    values = yaml.safe_load(graph.read_text())
    assert "suppress" not in values["checks"]
    graph.write_text(yaml.safe_dump(merged(values, {"hardware": {"gpu_hour": 2.5}})))
    assert cli.main(["check", str(graph)]) == 0
    output = capsys.readouterr().err
    for key, new in RENAMED_KEYS.items():
        assert f"{key}: deprecated key" in output
        assert f"Fix: Rename it to `{new}`." in output
