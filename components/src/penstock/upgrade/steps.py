"""The order of an upgrade on a cluster, and which versions may run together in between."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.graph.load import LoadedGraph
from penstock.graph.model import Graph
from penstock.graph.versions import is_prerelease, minor, numbers
from penstock.upgrade.model import Step

CRDS = tuple(
    f"{name}.nvidia.com"
    for name in (
        "dynamocomponentdeployments",
        "dynamographdeployments",
        "dynamographdeploymentscalingadapters",
        "dynamoworkermetadatas",
    )
)
CHART = "oci://helm.ngc.nvidia.com/nvidia/ai-dynamo/charts/dynamo-platform"
# Releases that may be apart (docs of 1.6, rolling-updates.mdx). 1.0 followed 0.9.
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
                f"Check: `kubectl get crd {' '.join(CRDS)}` lists all of them.",
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
            f"`penstock upgrade {loaded.source} --to {new}` writes the file.",
            f"`penstock diff {loaded.source}` shows the rollout, and `penstock apply "
            f"{loaded.source}` performs it. Change all pools in one apply.",
            "Upgrade the next graph when this one is ready.",
        ),
    )


def _operator(new: str) -> Iterator[str]:
    yield f"`helm upgrade dynamo-platform {CHART} --version {new} -n dynamo-system --reuse-values`"
    if is_prerelease(new):
        yield f"{new} is a pre-release: a chart or image with this version may not be published."
    yield "Its start restarts no graph; wait until it is ready before you change a graph."


def _needs_grove(graph: Graph) -> bool:
    return graph.cluster.topology is not None or any(p.nodes >= 2 for p in graph.pools.values())


def skew(old: str, new: str) -> tuple[str, ...]:
    """What may run together, by the documented limits and what the rehearsal measured."""
    apart = _release(new) - _release(old)
    frontend = "may" if apart <= FRONTEND_BEHIND else "must not"
    operator = "may" if apart <= OPERATOR_BEHIND else "must not"
    return (
        f"operator {minor(new)} with graphs of {minor(old)}: {operator} run together (the operator "
        f"supports {OPERATOR_BEHIND} releases back)",
        f"frontends {minor(new)} with workers {minor(old)}: {frontend} run together (a frontend "
        f"supports workers {FRONTEND_BEHIND} releases back)",
        f"frontends {minor(old)} with workers {minor(new)}: not documented as supported; a "
        "rollout of all pods in one apply has them together for a short time",
        f"prefill {minor(old)} with decode {minor(new)}, or the reverse: not documented as "
        "supported; workers of one apply have their own namespace, so that they do not meet",
    )


def _release(version: str) -> int:
    major, second, _ = numbers(version)
    return 10 * major + second
