"""The order of an upgrade on a cluster, and which versions may run together in between."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cluster.crds import GRAPHS, GROUP, OF_OPERATOR
from penstock.graph.load import LoadedGraph
from penstock.graph.model import Graph
from penstock.graph.versions import is_prerelease, minor
from penstock.text.commands import command
from penstock.upgrade.model import Step

CRDS = tuple(f"{name}.{GROUP}" for name in sorted((GRAPHS, *OF_OPERATOR, "dynamoworkermetadatas")))
CHART = "oci://helm.ngc.nvidia.com/nvidia/ai-dynamo/charts/dynamo-platform"
# Releases that may be apart (docs of 1.6, rolling-updates.mdx).
FRONTEND_BEHIND, OPERATOR_BEHIND = 2, 2


def steps(loaded: LoadedGraph, old: str, new: str) -> tuple[Step, ...]:
    return tuple(_steps(loaded, old, new))


def _steps(loaded: LoadedGraph, old: str, new: str) -> Iterator[Step]:
    graph = loaded.graph
    if graph.platform == "dynamo":
        yield Step(
            title=f"CRDs of Dynamo {new}",
            actions=(
                "The operator's chart applies them before the operator starts (upgradeCRD: true, "
                "its default). With upgradeCRD: false, apply them yourself first, with "
                "`kubectl apply --server-side`.",
                f"Check: `kubectl get crd {' '.join(CRDS)}` must list all four.",
            ),
        )
        if _needs_grove(graph):
            yield Step(
                title="Grove",
                actions=(
                    f"This graph needs it. Install the version that the chart of Dynamo {new} "
                    "names (`helm show chart`), and wait until its operator is ready.",
                ),
            )
        yield Step(title=f"operator {new}", actions=tuple(_operator(new)))
    yield Step(
        title=f"graph {loaded.name}",
        actions=(
            f"{command('upgrade', loaded.source, '--to', new)} writes the file.",
            f"{command('diff', loaded.source)} shows the rollout, and "
            f"{command('apply', loaded.source)} performs it. Change all pools in one apply.",
            "Upgrade the next graph when this one is ready.",
        ),
    )


def _operator(new: str) -> Iterator[str]:
    helm = f"helm upgrade dynamo-platform {CHART} --version {new} -n dynamo-system"
    yield f"`{helm} --reset-then-reuse-values`"
    if is_prerelease(new):
        yield f"{new} is a pre-release: a chart or image with this version may not be published."
    yield "Upgrading the operator restarts no graph. Wait until it is ready before you change one."


def _needs_grove(graph: Graph) -> bool:
    return graph.cluster.topology is not None or any(p.nodes >= 2 for p in graph.pools.values())


def skew(old: str, new: str, *, has_operator: bool) -> Iterator[str]:
    """The documented limits of version skew in Dynamo, for an upgrade by at most one release."""
    if minor(old) == minor(new):
        yield f"{old} and {new}: supported (one minor release)"
        return
    if has_operator:
        limit = f"graphs up to {OPERATOR_BEHIND} releases older"
        yield f"operator {minor(new)}, graphs {minor(old)}: supported ({limit})"
    limit = f"workers up to {FRONTEND_BEHIND} releases older"
    yield f"frontends {minor(new)}, workers {minor(old)}: supported ({limit})"
    yield (
        f"frontends {minor(old)}, workers {minor(new)}: not documented as supported; a rollout of "
        "all pods in one apply has them together for a short time"
    )
    apart_text = (
        "the workers of each generation use a Dynamo namespace of their own, so old and new ones "
        "do not exchange KV blocks"
    )
    pools = f"prefill {minor(old)}, decode {minor(new)}, or the reverse"
    yield f"{pools}: not documented as supported" + (f"; {apart_text}" if has_operator else "")
