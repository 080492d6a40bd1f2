"""The life of a release, with the same scenarios on the emulated cluster and on a real one.

`KUBECONFIG=… uv run pytest tests/kubernetes/cluster/test_contract.py -m cluster` creates a
namespace of its own there and deletes it. The engines are mockers and need no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import RolloutError
from tests.support.emulated_cluster.site import OPTIONS, OnSite, Site

MISSING = {"image": "registry.invalid/missing:1.6.1"}
# Refusals of a writer that begins before, during or after the write of another one.
OF_THE_OTHER = (
    "your change was not applied",
    "changed it in the meantime",
    "another client is upgrading the release, or was interrupted",
)
CHANGE = {"config": {"engine": {"block_size": 64}}}


# Without and with monitors, a network policy, a model cache and an autoscaler. CI runs one of them;
# test_real_failures.py changes plain releases too. `make nightly` runs all.
CASES = [
    pytest.param(("dynamo", {}), id="dynamo-bare", marks=pytest.mark.nightly),
    pytest.param(("dynamo", OPTIONS), id="dynamo-all options"),
    pytest.param(("plain", {}), id="plain-bare", marks=pytest.mark.nightly),
    pytest.param(("plain", OPTIONS), id="plain-all options", marks=pytest.mark.nightly),
    pytest.param(("real", {}), id="real-bare", marks=pytest.mark.cluster),
    pytest.param(("real", OPTIONS), id="real-all options", marks=pytest.mark.cluster),
]


@pytest.fixture(params=CASES)
def site(request: pytest.FixtureRequest, on_site: OnSite) -> Iterator[Site]:
    """The installed quickstart: one frontend, two prefill workers, one decode worker."""
    platform, options = request.param
    with on_site(platform, options) as site:
        site.expect(0, "apply", "--yes")
        yield site


def test_install_and_scale(site: Site) -> None:
    since = len(site.serving)
    assert site.run("status", "--cluster")[0] == 0
    assert "restarted" not in site.expect(0, "scale", "decode=2", "prefill=1", "--cluster", "--yes")
    assert site.replicas() == {"frontend": 1, "prefill": 1, "decode": 2}
    assert site.lowest("decode", since) >= 1


def test_config_change(site: Site) -> None:
    since = len(site.serving)
    site.edit(prefill=CHANGE)
    site.expect(0, "apply", "--yes")
    assert site.run("diff")[0] == 0
    assert site.lowest("decode", since) >= 1
    assert site.lowest("prefill", since) >= 1


def test_failed_upgrade_with_rollback(site: Site) -> None:
    since = len(site.serving)
    text = site.graph.read_text()
    site.edit(engine=MISSING)
    output = site.expect(RolloutError, "apply", "--yes", "--rollback-on-failure")
    assert "image cannot be pulled" in output
    assert "was rolled back to revision 1" in output
    site.graph.write_text(text)
    assert site.run("diff")[0] == 0
    assert site.lowest("decode", since) >= 1


def start_a_rollout_that_cannot_finish(site: Site) -> int:
    """Apply a missing image and restore the old file; the index of the next observation."""
    since = len(site.serving)
    text = site.graph.read_text()
    site.edit(engine=MISSING)
    assert site.apply("--no-wait")[0] == 0
    site.graph.write_text(text)
    return since


def test_two_quick_edits(site: Site) -> None:
    since = start_a_rollout_that_cannot_finish(site)
    site.edit(prefill=CHANGE, decode={"replicas": 2})
    site.expect(0, "apply", "--yes")
    assert site.run("diff")[0] == 0
    assert site.replicas()["decode"] == 2
    assert site.lowest("decode", since) >= 1


def test_revert_during_a_rollout(site: Site) -> None:
    since = start_a_rollout_that_cannot_finish(site)
    site.expect(0, "apply", "--yes")
    assert site.run("diff")[0] == 0
    assert site.lowest("decode", since) >= 1
    assert site.lowest("prefill", since) >= 1


def test_revert_after_new_workers_are_ready(site: Site) -> None:
    """Pods of the old generation are gone already, so they cannot simply be kept."""
    old = {pod["metadata"]["uid"] for pod in site.pods("decode")}
    text = site.graph.read_text()
    site.edit(prefill={"replicas": 3})
    assert site.apply()[0] == 0
    site.slow_down()
    site.edit(prefill=CHANGE)
    since = len(site.serving)
    assert site.apply("--no-wait")[0] == 0
    site.wait_until(lambda: not old & {pod["metadata"]["uid"] for pod in site.pods("decode")})
    site.graph.write_text(text)
    site.expect(0, "apply", "--yes")
    assert site.run("diff")[0] == 0
    assert site.lowest("decode", since) >= 1
    assert site.lowest("prefill", since) >= 2


def test_two_edits_with_ready_new_workers(site: Site) -> None:
    site.slow_down()
    old = {pod["metadata"]["uid"] for pod in site.pods("decode")}
    since = len(site.serving)
    site.edit(prefill=CHANGE)
    assert site.apply("--no-wait")[0] == 0
    site.wait_until(lambda: not old & {pod["metadata"]["uid"] for pod in site.pods("decode")})
    site.edit(prefill={"config": {"engine": {"block_size": 128}}})
    site.expect(0, "apply", "--yes")
    assert site.lowest("decode", since) >= 1
    assert site.lowest("prefill", since) >= 2


def test_two_writers(site: Site) -> None:
    """Of two applies that begin together, one is written, and the other one changes nothing."""
    edited = site.graph.with_name("other") / site.graph.name
    edited.parent.mkdir()
    edited.write_text(site.graph.read_text())
    other = replace(site, graph=edited)
    site.edit(prefill=CHANGE)
    other.edit(prefill={"config": {"engine": {"block_size": 128}}})
    processes = [each.start("apply", "--yes", "--no-wait") for each in (site, other)]
    results = [(p.wait(), p.stdout.read() if p.stdout else "") for p in processes]
    failed = [output for code, output in results if code != 0]
    for output in failed:
        assert any(text in output for text in OF_THE_OTHER), output
    last, overwritten = (site, other) if site.run("diff")[0] == 0 else (other, site)
    assert last.run("diff")[0] == 0
    assert overwritten.run("diff")[0] == EXIT_CHANGED
    assert last.apply()[0] == 0


def test_drift(site: Site) -> None:
    site.by_hand("decode", 3)
    assert "drift: decode: replicas 1 → 3" in site.expect(EXIT_CHANGED, "diff")
    site.expect(0, "apply", "--yes")
    assert site.replicas()["decode"] == 1
    assert site.run("diff")[0] == 0


def test_the_owner_of_the_replicas_changes_to_an_autoscaler_and_back(site: Site) -> None:
    """The current number is kept at each change, and no apply resets an autoscaler's."""
    site.edit(prefill={"replicas": 3})
    assert site.apply()[0] == 0
    since = len(site.serving)
    site.edit(prefill={"replicas": None, "autoscaling": {"owner": "external"}})
    output = site.expect(0, "apply", "--yes")
    assert "prefill: replicas will be set by an autoscaler" in output
    assert "restarted" not in output
    site.autoscale("prefill", 4)
    site.wait_replicas("prefill", 4)
    assert site.run("diff")[0] == 0
    site.edit(decode={"replicas": 2})
    site.expect(0, "apply", "--yes")
    assert site.replicas()["prefill"] == 4
    code, output = site.run("scale", "prefill=1", "--cluster", "--yes")
    assert code != 0
    assert "external sets the number of replicas, not the graph" in output
    site.edit(prefill={"replicas": 4, "autoscaling": None})
    assert "prefill: replicas will be set by the graph" in site.expect(0, "apply", "--yes")
    assert site.lowest("prefill", since) >= 3
    site.edit(prefill={"replicas": 2})
    site.expect(0, "apply", "--yes")
    assert site.replicas()["prefill"] == 2


def test_uninstall(site: Site) -> None:
    site.expect(0, "uninstall", "--yes")
    code, output = site.run("history")
    assert code != 0
    assert "is not installed" in output
    chosen = "app.kubernetes.io/instance=contract"
    assert not site.core.list_namespaced_config_map(site.namespace, label_selector=chosen).items
