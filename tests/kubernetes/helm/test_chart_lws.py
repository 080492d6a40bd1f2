"""Engines on several nodes with platform plain: LeaderWorkerSets with the operator's flags.

Without a LeaderWorkerSet controller, a GPU or a cluster: the tests check what is rendered, and run
the leader's script with substitutes for mpirun and the engine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.engines.flags import load
from penstock.manifests.render import chart_path
from penstock.manifests.source import open_source
from tests.support.charts import Chart, Values, graph_values, of_kind

NODES = {"nodes": 2, "gpus": 8}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
SCRIPTS = sorted((chart_path() / "files").glob("mpi-*.sh"))
LEADER = "$(LWS_LEADER_ADDRESS)"
INDEX = "$(LWS_WORKER_INDEX)"


def grouped(kind: str, **sections: Any) -> Values:
    """A graph whose decode pool spans two nodes."""
    if kind == "trtllm":
        sections["cluster"] = {"ssh_secret": "engine-ssh", **sections.get("cluster", {})}
    decode = {**NODES, **sections.pop("decode", {})}
    return graph_values(kind, platform="plain", decode=decode, **sections)


def templates(values: Values) -> tuple[Values, Values]:
    """Leader's and worker's."""
    (group,) = of_kind(values, "LeaderWorkerSet")
    both = group["spec"]["leaderWorkerTemplate"]
    return both["leaderTemplate"], both["workerTemplate"]


def mains(values: Values) -> tuple[Values, Values]:
    leader, worker = (t["spec"]["containers"][0] for t in templates(values))
    return leader, worker


def names(container: Values) -> set[str]:
    return {variable["name"] for variable in container["env"]}


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm"])
def test_the_pool_is_a_leaderworkerset_and_all_else_is_unchanged(kind: str) -> None:
    values = grouped(kind, decode={"replicas": 3})
    (group,) = of_kind(values, "LeaderWorkerSet")
    assert group["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert group["metadata"]["name"] == "demo-decode"
    spec = group["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (3, 2)
    assert spec["startupPolicy"] == "LeaderCreated"
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert spec["rolloutStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0},
    }
    deployments = [o["metadata"]["name"] for o in of_kind(values, "Deployment")]
    assert deployments == ["demo-frontend", "demo-prefill"]
    assert of_kind({**values, "platform": "dynamo", "cluster": {}}, "LeaderWorkerSet") == []


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm"])
def test_pods_of_a_group_are_those_of_the_operator_with_what_plain_adds(
    chart: Chart, kind: str
) -> None:
    values = grouped(kind)
    infrastructure = {"discovery": "etcd", "etcd_endpoints": ["http://demo-etcd:2379"]}
    dynamo = {**values, "platform": "dynamo", "cluster": {}, "infrastructure": infrastructure}
    expected = chart.component(dynamo, "decode")["podTemplate"]
    main = expected["spec"]["containers"][0]
    (prefill,) = (o for o in of_kind(values, "Deployment") if "prefill" in o["metadata"]["name"])
    single = prefill["spec"]["template"]["spec"]["containers"][0]
    for template in templates(values):
        spec, container = template["spec"], template["spec"]["containers"][0]
        assert template["metadata"] == expected["metadata"]
        for key in ("terminationGracePeriodSeconds", "securityContext", "tolerations"):
            assert spec[key] == expected["spec"][key]
        for key in ("image", "resources", "securityContext"):
            assert container[key] == main[key]
        assert {m["name"] for m in container["volumeMounts"]} >= {"engine-config", "shared-memory"}
        assert names(container) >= names(single)
    leader, _ = mains(values)
    assert [leader[probe] for probe in PROBES] == [single[probe] for probe in PROBES]
    assert leader["ports"] == single["ports"]


def test_vllm_that_spans_nodes_has_one_server_and_headless_workers(chart: Chart) -> None:
    values = grouped("vllm")
    leader, worker = mains(values)
    on_dynamo = chart.args({**values, "platform": "dynamo"}, "decode")
    assert on_dynamo[-2:] == ["--tensor-parallel-size", "16"]

    def added(rank: str) -> list[str]:
        backend = ["--distributed-executor-backend", "mp", "--nnodes", "2", "--node-rank", rank]
        return [*backend, "--master-addr", LEADER, "--master-port", "29500"]

    assert leader["args"] == [*on_dynamo, *added("0")]
    assert worker["args"] == [*on_dynamo, *added(INDEX), "--headless"]
    assert leader["command"] == worker["command"] == ["python3", "-m", "dynamo.vllm"]
    for container in (leader, worker):
        (host,) = (e for e in container["env"] if e["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST")
        assert host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.program
def test_vllm_with_complete_ranks_on_each_node_serves_on_each() -> None:
    config = {"tensor_parallel_size": 4, "data_parallel_size": 4}
    leader, worker = mains(grouped("vllm", decode={"config": config}))
    added = ["--data-parallel-hybrid-lb", "--data-parallel-size-local", "2"]
    added += ["--data-parallel-address", LEADER, "--data-parallel-rpc-port", "13445"]
    assert leader["args"][-9:] == [*added, "--data-parallel-start-rank", "0"]
    assert worker["args"][-7:] == added
    assert "--headless" not in worker["args"]
    assert [worker[probe] for probe in PROBES] == [leader[probe] for probe in PROBES]
    assert worker["ports"] == leader["ports"]
    # The rank is a product, which only a shell can compute.
    assert worker["command"][-3:] == ["python3", "-m", "dynamo.vllm"]
    command = [*worker["command"][:-3], "echo", *worker["args"]]
    environment = {**os.environ, "LWS_WORKER_INDEX": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*worker["args"], "--data-parallel-start-rank", "6"]


def test_vllm_accepts_the_flags() -> None:
    known = {flag for option in load("vllm_flags.json")["options"] for flag in option["flags"]}
    config = {"tensor_parallel_size": 4, "data_parallel_size": 4}
    for values in (grouped("vllm"), grouped("vllm", decode={"config": config})):
        for container in mains(values):
            flags = {arg for arg in container["args"] if arg.startswith("--")}
            # Dynamo's own, and of the parser that reads files.
            assert flags - known <= {"--config", "--headless", "--disaggregation-mode"}


def test_a_variable_of_the_graph_overrides_that_of_the_group() -> None:
    env = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}
    for container in mains(grouped("vllm", decode={"env": env})):
        assert [e["value"] for e in container["env"] if e["name"] in env] == ["10.0.0.1"]


def test_sglang_has_its_rank_and_the_leaders_address(chart: Chart) -> None:
    values = grouped("sglang", decode={"nodes": 4})
    on_dynamo = chart.args({**values, "platform": "dynamo"}, "decode")
    for container, rank in zip(mains(values), ("0", INDEX), strict=True):
        added = ["--dist-init-addr", f"{LEADER}:29500", "--nnodes", "4", "--node-rank", rank]
        assert container["args"] == [*on_dynamo, *added]
        assert container["command"] == ["python3", "-m", "dynamo.sglang"]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_worker_without_a_server_has_no_probes_and_is_not_scraped(kind: str) -> None:
    values = grouped(kind, cluster={"monitoring": {"pod_monitors": True}})
    leader, worker = mains(values)
    assert not {*PROBES, "ports"} & worker.keys()
    monitors = {o["metadata"]["name"]: o for o in of_kind(values, "PodMonitor")}
    (endpoint,) = monitors["demo-decode"]["spec"]["podMetricsEndpoints"]
    # Prometheus skips pods without a port of that name.
    assert endpoint["port"] in {port["name"] for port in leader["ports"]}


def without_comments(script: Path) -> str:
    """Comments are not part of the pod template: editing them must not restart pods."""
    lines = script.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.strip().startswith("# "))


def test_tensorrt_llm_starts_all_ranks_from_the_leader(chart: Chart) -> None:
    values = grouped("trtllm", decode={"env": {"OWN": "1"}})
    leader, worker = mains(values)
    dynamo = {**values, "platform": "dynamo", "cluster": {}}
    main = chart.main(dynamo, "decode")
    script, zero, ranks, variables, *command = leader["args"]
    assert leader["command"] == worker["command"] == ["bash", "-c"]
    assert [script, *worker["args"]] == [without_comments(path) for path in SCRIPTS]
    assert (zero, ranks) == ("leader", "16")
    assert command == [*main["command"], *main["args"]]
    assert set(variables.split()) >= names(leader) | {"OWN", "PATH", "HF_TOKEN"}
    for container in (leader, worker):
        (keep,) = (e for e in container["env"] if e["name"].startswith("OMPI"))
        assert keep == {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "1"}
    assert worker["ports"] == [{"name": "ssh", "containerPort": 2222, "protocol": "TCP"}]
    assert worker["readinessProbe"] == {
        "tcpSocket": {"port": "ssh"},
        "initialDelaySeconds": 20,
        "periodSeconds": 20,
        "timeoutSeconds": 5,
        "failureThreshold": 10,
    }
    assert not {"startupProbe", "livenessProbe"} & worker.keys()


def test_the_key_is_mounted_from_the_users_secret_and_is_nowhere_in_the_manifests() -> None:
    values = grouped("trtllm")
    assert of_kind(values, "Secret") == []
    for template in templates(values):
        (volume,) = (v for v in template["spec"]["volumes"] if v["name"] == "engine-ssh-key")
        assert volume["secret"] == {"secretName": "engine-ssh", "defaultMode": 0o444}
        mounts = template["spec"]["containers"][0]["volumeMounts"]
        (mount,) = (m for m in mounts if m["name"] == "engine-ssh-key")
        assert (mount["mountPath"], mount["readOnly"]) == ("/ssh-pk", True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_kubelet_does_not_change_the_scripts(script: Path) -> None:
    """It expands $(VARIABLE) in arguments, and replaces two dollar signs by one."""
    text = script.read_text()
    assert "$$" not in text
    assert re.findall(r"\$\(\w+\)", text) == []
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100


MPIRUN = """#!/bin/bash
echo "mpirun $*" | sed "s|$TMPDIR/[^ ,]*/|HOME/|g"
while [ "$1" != trtllm-llmapi-launch ]; do shift; done
shift
exec "$@"
"""
ENGINE = """#!/bin/bash
trap 'echo drained; exit 0' TERM
echo "engine $*"
while :; do sleep 0.05; done
"""


@pytest.mark.program
def test_the_leader_runs_mpirun_and_on_sigterm_lets_the_worker_drain(tmp_path: Path) -> None:
    for name, text in (("mpirun", MPIRUN), ("engine", ENGINE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "private.key").write_text("key")
    text = next(p for p in SCRIPTS if "leader" in p.name).read_text()
    text = text.replace("/ssh-pk/", f"{tmp_path}/")
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "LWS_LEADER_ADDRESS": "demo-decode-0.demo-decode.ns",
        "LWS_GROUP_SIZE": "1",  # alone: it waits for no sshd
        "SAID": "a b",
    }
    command = ["bash", "-c", text, "leader", "8", "SAID UNSAID", "engine", "--model", "x"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        arguments = leader.stdout.readline().split()
        assert leader.stdout.readline() == "engine --model x\n"
        leader.send_signal(signal.SIGTERM)
        assert leader.stdout.read() == "drained\n"
        assert leader.wait() == 0
    assert " ".join(arguments) == (
        "mpirun --allow-run-as-root --oversubscribe -n 8 -H demo-decode-0.demo-decode.ns "
        "--mca pml ob1 --mca plm_rsh_args -p 2222 -i HOME/key -o StrictHostKeyChecking=no "
        "-o UserKnownHostsFile=/dev/null -x SAID trtllm-llmapi-launch HOME/main engine --model x"
    )


def test_root_of_engines_on_several_nodes_keeps_what_ssh_needs() -> None:
    values = grouped("trtllm", hardware={"fabric": "ib"})
    for template in templates(values):
        assert template["spec"]["securityContext"]["runAsUser"] == 0
        container = template["spec"]["containers"][0]
        assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
        assert container["resources"]["limits"]["rdma/ib"] == "8"


@pytest.mark.parametrize("owner", ["hpa", "keda"])
def test_an_autoscaler_scales_the_groups(owner: str) -> None:
    words = {"hpa": ("cpu", 70), "keda": ("requests", 8)}[owner]
    autoscaling = {"owner": owner, "max": 4, "signal": words[0], "target": words[1]}
    monitored = {"monitoring": {"pod_monitors": True}}
    decode = {"autoscaling": autoscaling, "resources": {"cpu": "8"}}
    values = grouped("vllm", decode=decode, cluster=monitored)
    kind = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}[owner]
    (scaler,) = of_kind(values, kind)
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "demo-decode",
    }
    (group,) = of_kind(values, "LeaderWorkerSet")
    assert "replicas" not in group["spec"]


def test_a_drained_node_takes_one_pod_of_the_pool_at_a_time() -> None:
    budgets = {o["metadata"]["name"]: o["spec"] for o in of_kind(grouped("vllm"), POD_BUDGET)}
    assert budgets["demo-decode"]["maxUnavailable"] == 1
    assert "demo-prefill" not in budgets


POD_BUDGET = "PodDisruptionBudget"


def test_a_graph_with_a_key_is_read_as_a_dgd_which_needs_none(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(grouped("trtllm")))
    source = open_source(path)
    assert "ssh" not in source.text
    assert {c.name: c.nodes for c in source.deployment.components}["decode"] == 2
