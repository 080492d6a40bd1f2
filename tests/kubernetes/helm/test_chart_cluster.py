"""Objects besides the pods: model files, permissions, budgets, networks, monitors, etcd."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.manifests.render import render
from tests.support.charts import Chart, Values, graph_values, of_kind

COMMIT = "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"
ID = "openai/gpt-oss-120b"


def fetched(**cache: object) -> dict[str, object]:
    return {"id": ID, "revision": COMMIT, "cache": {"pvc": "models", "download": True, **cache}}


def test_a_claim_is_created_only_on_request_and_kept_at_uninstall() -> None:
    assert of_kind(graph_values(model={"id": ID, "cache": {"pvc": "models"}}), KIND) == []
    cache = {"pvc": "models", "create": {"size": "200Gi", "storage_class": "fast"}}
    (claim,) = of_kind(graph_values(model={"id": ID, "cache": cache}), KIND)
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "200Gi"


KIND = "PersistentVolumeClaim"


def test_workers_wait_for_the_job_and_open_its_directory(chart: Chart) -> None:
    values = graph_values("trtllm", model=fetched())
    path = f"/opt/model-cache/models/{ID}/{COMMIT}"
    (job,) = of_kind(values, "Job")
    (download,) = job["spec"]["template"]["spec"]["containers"]
    assert download["args"][2:] == [ID, COMMIT, path]
    for name in ("prefill", "decode"):
        (wait,) = chart.pod(values, name)["initContainers"]
        assert wait["args"][2:] == [f"{path}/.complete"]
        args = chart.args(values, name)
        assert args[args.index("--model") + 1] == path
        assert args[args.index("--served-model-name") + 1] == ID
        assert chart.env(values, name)["HF_HUB_OFFLINE"] == "1"
        assert "revision" not in chart.config(values, name)
    assert "initContainers" not in chart.pod(values, "frontend")
    assert {"name": "HF_HUB_OFFLINE", "value": "0"} in download["env"]


def test_the_draft_model_is_downloaded_too(chart: Chart) -> None:
    draft = {"method": "eagle3", "draft_model": "d/e", "draft_revision": "a" * 40}
    values = graph_values("trtllm", model=fetched(), speculation=draft)
    path = f"/opt/model-cache/models/d/e/{'a' * 40}"
    (job,) = of_kind(values, "Job")
    (download,) = job["spec"]["template"]["spec"]["containers"]
    assert download["args"][5:] == ["d/e", "a" * 40, path]
    assert chart.config(values, "decode")["speculative_config"]["speculative_model"] == path


FAKE_HF = """#!/bin/sh
[ "$1" = download ] && [ "$3" = --revision ] && [ "$5" = --local-dir ] || exit 9
[ "$2" = broken/model ] && exit 1
mkdir -p "$6" && echo "$2@$4" > "$6/model"
"""


def _job(values: Values, folder: Path) -> subprocess.CompletedProcess[str]:
    """The Job's command with a hub that is a shell script, its paths under ``folder``."""
    (folder / "hf").write_text(FAKE_HF)
    (folder / "hf").chmod(0o755)
    (job,) = of_kind(values, "Job")
    (download,) = job["spec"]["template"]["spec"]["containers"]
    argv = [*download["command"], *download["args"]]
    argv = [part.replace("/opt/model-cache", str(folder)) for part in argv]
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)


@pytest.mark.program
def test_the_script_of_the_job_marks_complete_downloads(tmp_path: Path) -> None:
    assert _job(graph_values("trtllm", model=fetched()), tmp_path).returncode == 0
    folder = tmp_path / "models" / ID / COMMIT
    assert (folder / "model").read_text() == f"{ID}@{COMMIT}\n"
    assert (folder / ".complete").exists()


@pytest.mark.program
def test_a_failed_download_leaves_no_marker(tmp_path: Path) -> None:
    values = graph_values("trtllm", model={**fetched(), "id": "broken/model"})
    assert _job(values, tmp_path).returncode == 1
    assert list(tmp_path.rglob(".complete")) == []


@pytest.mark.program
def test_a_worker_waits_for_the_marker(chart: Chart, tmp_path: Path) -> None:
    values = graph_values("trtllm", model=fetched())
    (wait,) = chart.pod(values, "decode")["initContainers"]
    marker = tmp_path / ".complete"
    script = wait["args"][0].replace("sleep 10", f"touch {marker}")
    argv = [*wait["command"], script, "sh", str(marker)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, f"waiting for {marker}\n")


def test_with_an_offline_claim_no_pod_accesses_the_hub(chart: Chart) -> None:
    values = graph_values(model={"id": ID, "cache": {"pvc": "models", "offline": True}})
    for name in ("frontend", "prefill", "decode"):
        assert chart.env(values, name)["HF_HUB_OFFLINE"] == "1"
    assert of_kind(values, "Job") == []


def test_a_disruption_budget_allows_one_pod_of_several_to_be_evicted() -> None:
    values = graph_values("trtllm", prefill={"replicas": 4}, decode={"nodes": 2, "gpus": 8})
    budgets = {
        o["metadata"]["labels"]["app.kubernetes.io/component"]: o["spec"]["minAvailable"]
        for o in of_kind(values, "PodDisruptionBudget")
    }
    assert budgets == {"prefill": 3, "decode": 1}  # one frontend: a budget would block the node
    values["cluster"] = {"disruption_budgets": False}
    assert of_kind(values, "PodDisruptionBudget") == []


def test_an_existing_account_gets_the_roles_for_discovery(chart: Chart) -> None:
    assert of_kind(graph_values(), "RoleBinding") == []
    values = graph_values(cluster={"service_account": "cloud"})
    (binding,) = of_kind(values, "RoleBinding")
    assert binding["roleRef"]["name"] == "demo-k8s-service-discovery-role"
    assert binding["subjects"][0]["name"] == "cloud"
    assert chart.pod(values, "decode")["serviceAccountName"] == "cloud"


SCRAPER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
CLIENT = {"podSelector": {"matchLabels": {"app": "gateway"}}}


def test_network_policies_allow_only_required_connections() -> None:
    assert of_kind(graph_values(), "NetworkPolicy") == []
    policy = {"enabled": True, "clients": [CLIENT], "scrapers": [SCRAPER]}
    infrastructure = {"discovery": "etcd", "etcd_endpoints": ["http://etcd.infra:2379"]}
    values = graph_values(cluster={"network_policy": policy}, infrastructure=infrastructure)
    everyone, frontend = of_kind(values, "NetworkPolicy")
    labels_of_graph = {"penstock/graph": "demo"}
    assert everyone["spec"]["podSelector"]["matchLabels"] == labels_of_graph
    peers, scrapers = everyone["spec"]["ingress"]
    assert peers == {"from": [{"podSelector": {"matchLabels": labels_of_graph}}]}
    assert scrapers["from"] == [SCRAPER]
    assert {p["port"] for p in scrapers["ports"]} == {"system", "http"}
    _, outside = everyone["spec"]["egress"]
    assert {p["port"] for p in outside["ports"]} == {53, 5353, 443, 6443, 2379}
    (clients,) = frontend["spec"]["ingress"]
    assert clients == {"ports": [{"port": "http", "protocol": "TCP"}], "from": [CLIENT]}


def test_without_clients_the_endpoint_is_open_to_all() -> None:
    values = graph_values(cluster={"network_policy": {"enabled": True}})
    _, frontend = of_kind(values, "NetworkPolicy")
    assert frontend["spec"]["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]


def test_pod_monitors_name_graph_and_pool_on_every_series() -> None:
    assert of_kind(graph_values(), "PodMonitor") == []
    monitoring = {"pod_monitors": True, "labels": {"release": "prom"}, "interval_s": 5}
    monitors = of_kind(graph_values(cluster={"monitoring": monitoring}), "PodMonitor")
    assert [m["metadata"]["name"] for m in monitors] == [
        "demo-frontend",
        "demo-prefill",
        "demo-decode",
    ]
    for monitor in monitors:
        assert monitor["metadata"]["labels"]["release"] == "prom"
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        labels = {r["targetLabel"]: r["replacement"] for r in endpoint["relabelings"]}
        assert labels["app_kubernetes_io_instance"] == "demo"
        assert f"demo-{labels['app_kubernetes_io_component']}" == monitor["metadata"]["name"]
    ports = [m["spec"]["podMetricsEndpoints"][0]["port"] for m in monitors]
    assert ports == ["http", "system", "system"]


@pytest.mark.parametrize("member", [1, 3])
def test_etcd_knows_all_its_members(member: int) -> None:
    values = graph_values(platform="plain", cluster={"etcd": {"replicas": member}})
    (etcd,) = of_kind(values, "StatefulSet")
    (container,) = etcd["spec"]["template"]["spec"]["containers"]
    (cluster,) = (a for a in container["args"] if a.startswith("--initial-cluster="))
    assert cluster.count("=http://demo-etcd") == member == etcd["spec"]["replicas"]
    services = {s["metadata"]["name"] for s in of_kind(values, "Service")}
    assert {etcd["spec"]["serviceName"], "demo-etcd"} <= services
    budgets = [b["metadata"]["name"] for b in of_kind(values, "PodDisruptionBudget")]
    assert budgets == (["demo-etcd"] if member == 3 else [])


def test_another_number_of_members_is_another_stateful_set() -> None:
    """No member can join an existing cluster."""
    names = {
        of_kind(graph_values(platform="plain", cluster={"etcd": {"replicas": n}}), "StatefulSet")[
            0
        ]["metadata"]["name"]
        for n in (1, 3)
    }
    assert len(names) == 2


@pytest.mark.parametrize(
    ("infrastructure", "ports"),
    [
        ({}, set()),
        ({"discovery": "etcd"}, {2379}),
        ({"events": "nats"}, {4222}),
        ({"requests": "nats", "nats_url": "nats://n:5222"}, {5222}),
        ({"discovery": "etcd", "etcd_endpoints": ["http://e", "http://[2001:db8::10]:2380"]},
         {2379, 2380}),
    ],
)  # fmt: skip
def test_pods_reach_the_servers_that_they_use(
    infrastructure: dict[str, object], ports: set[int]
) -> None:
    policy = {"network_policy": {"enabled": True}}
    everyone, _ = of_kind(
        graph_values(cluster=policy, infrastructure=infrastructure), "NetworkPolicy"
    )
    open_ports = {p["port"] for rule in everyone["spec"]["egress"] for p in rule.get("ports", [])}
    assert open_ports == {53, 5353, 443, 6443} | ports


def test_every_selector_uses_labels_that_grove_does_not_override(chart: Chart) -> None:
    """Grove overrides app.kubernetes.io/name and component of the pods."""
    everything = {"network_policy": {"enabled": True}, "monitoring": {"pod_monitors": True}}
    for platform in ("dynamo", "plain"):
        values = graph_values(platform=platform, cluster=everything, prefill={"replicas": 3})
        for manifest in render(values, name="demo").objects:
            spec = manifest.get("spec", {})
            for selector in (spec.get("selector"), spec.get("podSelector")):
                if selector:
                    assert set(selector.get("matchLabels", selector)) <= {
                        "penstock/graph",
                        "penstock/component",
                    }


def test_only_graphs_that_need_grove_run_on_it(chart: Chart) -> None:
    def annotations(values: Values) -> Values:
        return dict(chart.dgd(values)["metadata"]["annotations"])

    assert annotations(graph_values("trtllm")) == {"nvidia.com/enable-grove": "false"}
    wide = graph_values("trtllm", decode={"nodes": 2})
    racks = graph_values("trtllm", cluster={"topology": {"name": "t", "pack_domain": "rack"}})
    for values in (wide, racks):
        assert annotations(values) == {"nvidia.com/grove-update-strategy": "RollingRecreate"}


def test_two_graphs_on_one_etcd_never_share_a_namespace() -> None:
    """A frontend uses every namespace that starts with its own and a dash."""

    def prefix(name: str) -> str:
        values = graph_values(platform="plain")
        (frontend, *_) = of_kind(values, "Deployment", name)
        env = frontend["spec"]["template"]["spec"]["containers"][0]["env"]
        return str(next(e["value"] for e in env if e["name"] == "DYN_NAMESPACE_PREFIX"))

    assert not prefix("gpt-oss").startswith(f"{prefix('gpt')}-")


@pytest.mark.parametrize(
    ("fragment", "place"),
    [
        ({"initContainers": [{"name": "mine", "image": "x"}]}, "initContainers"),
        ({"resourceClaims": [{"name": "mine"}]}, "resourceClaims"),
    ],
)
def test_pod_fragments_remove_nothing(chart: Chart, fragment: Values, place: str) -> None:
    hardware = {"gpu": "gb200", "fabric": "mnnvl"}
    values = graph_values("trtllm", model=fetched(), hardware=hardware, pod=fragment)
    names = [entry["name"] for entry in chart.pod(values, "decode")[place]]
    assert "mine" in names
    assert len(names) == 2
    (job,) = of_kind(values, "Job")
    assert "mine" not in str(job["spec"]["template"]["spec"].get("initContainers"))


def test_a_graphs_own_affinity_keeps_the_gpu(chart: Chart) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    values = graph_values("trtllm", hardware={"gpu": "h200"}, pod={"affinity": affinity})
    node = chart.pod(values, "decode")["affinity"]["nodeAffinity"]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [e["key"] for e in term["matchExpressions"]] == ["nvidia.com/gpu.product", "zone"]


def test_a_pod_can_be_configured_to_run_as_root(chart: Chart) -> None:
    values = graph_values("trtllm", pod={"securityContext": {"runAsUser": 0}})
    assert "runAsNonRoot" not in chart.pod(values, "decode")["securityContext"]


def test_the_name_of_the_job_depends_on_its_template() -> None:
    def name(**sections: Any) -> str:
        values = graph_values("trtllm", model=fetched(), **sections)
        return str(of_kind(values, "Job")[0]["metadata"]["name"])

    assert name() == name(cluster={"monitoring": {"pod_monitors": True}})
    assert name() != name(hardware={"gpu": "gb200"})
    assert name() != name(platform="plain")


def test_no_etcd_is_installed_if_endpoints_are_set() -> None:
    values = graph_values(platform="plain", infrastructure={"etcd_endpoints": ["http://e:2379"]})
    assert of_kind(values, "StatefulSet") == []


ADDED = {
    "POD_NAME",
    "POD_NAMESPACE",
    "POD_UID",
    "DYN_NAMESPACE",
    "DYN_COMPONENT",
    "DYN_NAMESPACE_PREFIX",
    "DYN_NAMESPACE_WORKER_SUFFIX",
    "DYN_SYSTEM_ENABLED",
    "DYN_SYSTEM_PORT",
    "DYN_HEALTH_CHECK_ENABLED",
    "NIXL_TELEMETRY_ENABLE",
}


@pytest.mark.parametrize("kind", ["mocker", "trtllm", "vllm", "sglang"])
def test_plain_deployments_have_the_pods_of_the_operator(chart: Chart, kind: str) -> None:
    """The same pod templates with only the additions of the operator."""
    infrastructure = {"discovery": "etcd", "etcd_endpoints": ["http://e:2379"]}
    values = graph_values(kind, infrastructure=infrastructure)
    for deployment in of_kind({**values, "platform": "plain"}, "Deployment"):
        name = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        template = copy.deepcopy(deployment["spec"]["template"])
        main = template["spec"]["containers"][0]
        ports = {p["name"]: str(p["containerPort"]) for p in main["ports"]}
        for probe in ("startupProbe", "livenessProbe"):
            assert main.pop(probe)["httpGet"]["port"] in ports
        _, _, _, port, *frontends = main.pop("readinessProbe")["exec"]["command"]
        assert port == ports["http" if name == "frontend" else "system"]
        assert frontends == ([] if name == "frontend" else ["demo-frontends:8000"])
        main["env"] = [e for e in main["env"] if e["name"] not in ADDED]
        main["ports"] = [p for p in main["ports"] if p["name"] != "system"]
        main["volumeMounts"] = [m for m in main.get("volumeMounts", []) if m["name"] != SHM]
        volumes = [v for v in template["spec"].get("volumes", []) if v["name"] != SHM]
        template["spec"]["volumes"] = volumes
        for key in ("serviceAccountName", "automountServiceAccountToken"):
            template["spec"].pop(key)
        expected = copy.deepcopy(chart.component(values, name)["podTemplate"])
        expected["spec"].setdefault("volumes", [])
        for key in ("ports", "volumeMounts"):
            expected["spec"]["containers"][0].setdefault(key, [])
        assert template == expected


SHM = "shared-memory"


def test_the_readiness_of_workers_asks_all_frontends_at_their_port() -> None:
    values = {**graph_values("vllm", frontend={"port": 9000}), "platform": "plain"}
    commands = [
        d["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["exec"]["command"][3:]
        for d in of_kind(values, "Deployment")
    ]
    assert sorted(commands) == [["9000"], *[["9090", "demo-frontends:9000"]] * 2]
    services = {s["metadata"]["name"]: s["spec"] for s in of_kind(values, "Service")}
    frontends = services["demo-frontends"]
    assert frontends["clusterIP"] == "None"
    assert [port["port"] for port in frontends["ports"]] == [9000]


def test_replicas_keep_the_generation_and_other_changes_replace_it_for_all_pools() -> None:
    def generations(values: Values) -> set[str]:
        return {
            variable["value"]
            for deployment in of_kind({**values, "platform": "plain"}, "Deployment")
            for variable in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
            if variable["name"] == "DYN_NAMESPACE_WORKER_SUFFIX"
        }

    first = generations(graph_values("trtllm"))
    assert len(first) == 1
    assert generations(graph_values("trtllm", prefill={"replicas": 7})) == first
    assert generations(graph_values("trtllm", frontend={"env": {"A": "b"}})) == first
    changed = generations(graph_values("trtllm", decode={"config": {"max_batch_size": 8}}))
    assert len(changed) == 1
    assert changed != first
