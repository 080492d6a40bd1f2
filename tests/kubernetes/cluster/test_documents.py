"""The blocks of README.md and docs/ that install and change a release run on the emulated cluster.

`GRAPH` and `planned.yaml` are the simulated quickstart here. Helm's SDK substitutes for its
command line, and `--yes` for the confirmation.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import helm_python
import pytest
import yaml

from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.manifests.render import chart_path
from tests.support.documents import ROOT, Block, blocks
from tests.support.emulated_cluster.released import Cluster

BLOCKS = [b for b in blocks() if b.test_file == Path(__file__)]
CONFIRMED = ("apply", "scale", "rollback", "uninstall")
# On a terminal, which tests/kubernetes/cluster/test_verbs.py has.
WATCH = "--watch"


def block_of(page: str, program: str, verb: str) -> Block:
    """The block that begins with a command."""
    (block,) = (b for b in BLOCKS if b.page == page and start_of(b) == (program, verb))
    return block


def start_of(block: Block) -> tuple[str, ...]:
    return tuple(block.commands()[0].removeprefix("uv run ").split()[:2])


def penstock(cluster: Cluster, command: str, *, expected: int = 0) -> str:
    """Run a command of a document; returns its output."""
    words = shlex.split(command.removeprefix("uv run "))[1:]
    words = [str(cluster.graph) if w in ("GRAPH", "planned.yaml") else w for w in words]
    words += ["--kubeconfig", str(cluster.kubeconfig)]
    words += ["--yes"] if words[0] in CONFIRMED else []
    code = cli.main([word for word in words if word != WATCH])
    captured = cluster.capsys.readouterr()
    assert code == expected, (command, captured.out, captured.err)
    return captured.out + captured.err


def helm_install(cluster: Cluster, command: str, folder: Path) -> str:
    """Run `helm install` with the SDK; returns the name of the release."""
    program, verb, release, chart, option, file = shlex.split(command)
    assert (program, verb, ROOT / chart, option) == ("helm", "install", chart_path(), "-f")
    values = yaml.safe_load((folder / file).read_text("utf-8"))
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace="default") as config:
        config.install(ROOT / chart, release, values)
    return release


def graphs(cluster: Cluster) -> list[tuple[str, str]]:
    """Namespace and name of each DynamoGraphDeployment."""
    objects = cluster.api.store.of_kind("DynamoGraphDeployment")
    return [(o["metadata"]["namespace"], o["metadata"]["name"]) for o in objects]


def test_every_block_that_names_this_test_is_run_here() -> None:
    assert [(block.page, *start_of(block)) for block in BLOCKS] == [
        ("README.md", "helm", "install"),
        ("docs/cluster.md", "helm", "install"),
        ("docs/cluster.md", "penstock", "apply"),
        ("docs/cluster.md", "penstock", "diff"),
        ("docs/tutorial.md", "penstock", "apply"),
    ]


def test_helm_installs_a_graph_of_the_repository(fresh: Cluster) -> None:
    (command,) = block_of("docs/cluster.md", "helm", "install").commands()
    release = helm_install(fresh, command, ROOT)
    assert graphs(fresh) == [("default", release)]


def test_helm_installs_the_graph_that_init_writes(
    fresh: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = block_of("README.md", "helm", "install")
    (command,) = block.commands()
    before = [c for b in blocks() if b.page == block.page for c in b.commands()]
    monkeypatch.chdir(tmp_path)
    (init,) = (c for c in before if c.startswith("uv run penstock init gpt-oss.yaml "))
    assert cli.main(shlex.split(init)[3:]) == 0
    release = helm_install(fresh, command, tmp_path)
    assert graphs(fresh) == [("default", release)]


def test_a_release_can_be_operated(fresh: Cluster) -> None:
    commands = block_of("docs/cluster.md", "penstock", "apply").commands()
    outputs = {command.split()[1]: penstock(fresh, command) for command in commands}
    assert "revision 1 is ready" in outputs["apply"]
    assert "prefill: scaled 2 → 6, without restart" in outputs["scale"]
    assert "prefill          6/6" in outputs["status"]
    assert "no changes" in outputs["diff"]
    assert graphs(fresh) == []


def test_a_release_can_be_updated(installed: Cluster) -> None:
    installed.edit(decode={"env": {"LEVEL": "debug"}})
    diff, apply, rollback = block_of("docs/cluster.md", "penstock", "diff").commands()
    assert "decode: restarted" in penstock(installed, diff, expected=EXIT_CHANGED)
    assert "revision 2 is ready" in penstock(installed, apply)
    assert "revision 3 is ready" in penstock(installed, rollback)


def test_a_planned_graph_is_applied(fresh: Cluster) -> None:
    (command,) = block_of("docs/tutorial.md", "penstock", "apply").commands()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    fresh.api.store.write(("v1", "namespaces", "", "ml"), space)
    assert "revision 1 is ready" in penstock(fresh, command)
    assert graphs(fresh) == [("ml", "gpt-oss")]
