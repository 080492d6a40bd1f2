"""`penstock logs --cluster`: the logs of a release's pods."""

from __future__ import annotations

import pytest

from penstock.errors import ClusterError, UsageError
from tests.support.emulated_cluster.released import Cluster

STAMPS = ("2026-11-29T08:00:00.9Z", "2026-11-29T08:00:01.10Z", "2026-11-29T08:00:01.123456789Z")


@pytest.fixture
def names(installed: Cluster) -> dict[str, str]:
    """Each pod of a component; the pods have two lines each."""
    pods = {}
    for pod in installed.api.store.of_kind("Pod"):
        name, component = pod["metadata"]["name"], pod["metadata"]["labels"]["penstock/component"]
        pods[component] = name
        lines = (f"{stamp} line {i} of {name}\n" for i, stamp in enumerate(STAMPS[:2]))
        installed.api.logs[name] = "".join(lines)
    return pods


def test_the_last_lines_of_every_pod(installed: Cluster, names: dict[str, str]) -> None:
    code, output = installed.run("logs", "--cluster", "--lines", "1")
    lines = [line.split(" | ") for line in output.splitlines()]
    assert code == 0
    assert len(lines) == 4
    assert all(text == f"line 1 of {name.rstrip()}" for name, text in lines)
    assert {name.rstrip() for name, _ in lines} >= set(names.values())


@pytest.mark.parametrize("by", ["component", "pod"])
def test_one_component_or_pod(installed: Cluster, names: dict[str, str], by: str) -> None:
    name = names["decode"]
    _, output = installed.run("logs", "decode" if by == "component" else name, "--cluster")
    assert output == f"{name} | line 0 of {name}\n{name} | line 1 of {name}\n"


def test_following_prints_each_new_line_once(
    installed: Cluster, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, polls = names["decode"], []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 2:
            installed.api.logs[name] += f"{STAMPS[2]} line 2 of {name}\n"
        if len(polls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(installed.clock, "sleep", sleep)
    output = installed.expect(130, "logs", "decode", "--cluster", "--follow")
    printed = [line for line in output.splitlines() if " | " in line]
    assert printed == [f"{name} | line {i} of {name}" for i in range(3)]


def test_what_is_wrong_is_named(installed: Cluster, names: dict[str, str]) -> None:
    output = installed.expect(UsageError, "logs", "decoder", "--cluster")
    assert "called 'decoder'. Fix: Use one of decode, frontend, prefill, or" in output
    assert "release default/other: has no pods" in installed.expect(
        ClusterError, "logs", "--cluster", "--release", "other"
    )
    assert "--kubeconfig needs --cluster" in installed.expect(UsageError, "logs", "--previous")


def test_following_survives_a_progress_bar_a_missing_pod_and_a_failed_request(
    installed: Cluster, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, polls = names["decode"], []
    key = ("v1", "pods", "default", name)
    pod = installed.api.store.objects[key]

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        match len(polls):
            case 1:
                installed.api.logs[name] += f"{STAMPS[2]} Loading: 10%\rLoading: 20%\n"
            case 2:
                installed.api.store.remove(key)
            case 3:
                installed.api.store.write(key, pod, trusted=True)
                installed.api.logs[name] = "2026-11-29T08:00:09Z ready\n"  # of the new pod
            case 5:
                raise KeyboardInterrupt

    monkeypatch.setattr(installed.clock, "sleep", sleep)
    output = installed.expect(130, "logs", "decode", "--cluster", "--follow")
    assert output.count("Loading: 10%\rLoading: 20%") == 1
    assert output.count("| ready") == 1
