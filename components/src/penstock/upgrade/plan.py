"""The upgrade of one graph: checked, compared and rewritten. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath

from penstock.checks.version_range import NAMES
from penstock.cluster.change import against_file
from penstock.engines.releases import RELEASES, following
from penstock.errors import GraphError, Problem
from penstock.graph.edit import set_texts
from penstock.graph.load import LoadedGraph, parse_graph
from penstock.graph.model import Graph
from penstock.graph.versions import (
    VERSIONS,
    about_wheel,
    is_prerelease,
    minor,
    order,
    version_in_tag,
    with_version,
)
from penstock.helm import ReleaseTarget
from penstock.manifests.source import graph_source
from penstock.strict_yaml.places import Path
from penstock.text.commands import command
from penstock.text.names import nearest
from penstock.upgrade.changes import own_settings, rendered, require_known_flags
from penstock.upgrade.crds import CRDS
from penstock.upgrade.report import Change, Step, Upgrade


def plan_upgrade(text: str, path: FilePath, new: str) -> Upgrade:
    """The upgrade of the graph with this text.

    GraphError when the version is unknown, not newer or more than one minor release later, when the
    graph uses what only a newer version has, or when the new version lacks what it uses.
    """
    loaded = parse_graph(text, str(path))
    old = loaded.graph.dynamo_version
    _require_newer(loaded, old, new)
    _require_adjacent(path, old, new)
    if problems := [*require_known_flags(loaded, old), *_other_images(loaded, old)]:
        raise GraphError(*problems)
    settings = own_settings(loaded, old, new)
    if settings.problems:
        raise GraphError(*settings.problems)
    changes: dict[Path, str | tuple[str, ...]] = {
        ("dynamo",): new,
        **_images(loaded, new),
        **settings.renames,
    }
    after = set_texts(text, changes, str(path))
    before_source = graph_source(text, str(path))
    after_source = graph_source(after, str(path))
    assert after_source.loaded is not None
    target = ReleaseTarget(name=loaded.name, namespace="default")
    restarts = against_file(after_source.loaded, target, path).lines()
    return Upgrade(
        source=str(path),
        old=old,
        new=new,
        before=text,
        after=after,
        needs_operator=loaded.graph.platform == "dynamo",
        steps=steps(loaded, old, new),
        skew=tuple(skew(old, new, has_operator=loaded.graph.platform == "dynamo")),
        changes=tuple(_changes(settings.changes, rendered(before_source, after_source, new))),
        restarts=tuple(restarts),
        notes=tuple(_notes(loaded, new)),
    )


def _changes(in_graph: Iterable[Change], of_chart: Iterable[Change]) -> Iterator[Change]:
    """The changes of the graph's own settings, then those that only the chart writes."""
    seen = set()
    for change in (*in_graph, *of_chart):
        if (change.place, change.text) not in seen:
            seen.add((change.place, change.text))
            yield change


def _require_newer(loaded: LoadedGraph, old: str, new: str) -> None:
    known = f"penstock knows {', '.join(VERSIONS)}"
    if new not in VERSIONS:
        begins = [v for v in VERSIONS if new and v.startswith(new)]
        near = min(begins, key=len, default=None) or nearest(new, VERSIONS)
        fix = f"Did you mean {near}?" if near else f"Use {VERSIONS[-1]}."
        problem = Problem(place="--to", message=f"{new!r} is not a known version; {known}", fix=fix)
        raise GraphError(problem)
    if order(new) > order(old):
        return
    message = (
        f"the graph already targets {old}"
        if new == old
        else f"{new} is older than {old}, which the graph targets"
    )
    newer = [v for v in VERSIONS if order(v) > order(old)]
    fix = f"Use --to {newer[-1]}." if newer else "There is no newer version to upgrade to."
    if new != old:
        fix = (
            "Downgrade a release with `penstock rollback`, and the file with your version control."
        )
    raise GraphError(
        message, file=loaded.source, line=loaded.places.line_of("dynamo"), place="dynamo", fix=fix
    )


def _require_adjacent(path: FilePath, old: str, new: str) -> None:
    """NVIDIA supports upgrades within a minor release or to the next one (page "Deprecations")."""
    next_minor = following(minor(old))
    if minor(new) in (minor(old), next_minor):
        return
    first = next(v for v in reversed(VERSIONS) if minor(v) == next_minor and not is_prerelease(v))
    raise GraphError(
        f"{new} is more than one minor release after {old}: NVIDIA supports an upgrade "
        "only to the next one",
        place="--to",
        fix=f"Run {command('upgrade', str(path), '--to', first)}, apply the file, and then run "
        f"{command('upgrade', str(path), '--to', new)}.",
    )


def _images(loaded: LoadedGraph, new: str) -> dict[Path, str]:
    """The images of the graph whose tag is the graph's version, with the new one."""
    return {
        (section, "image"): with_version(image, new)
        for place, image in loaded.graph.images.items()
        for section in (place.partition(".")[0],)
        if version_in_tag(image) == loaded.graph.dynamo_version
    }


def _other_images(loaded: LoadedGraph, old: str) -> Iterator[Problem]:
    """Images of another version than the graph's, which it may have while `dynamo` is unset."""
    for place, image in loaded.graph.images.items():
        version = version_in_tag(image)
        if version is not None and version != old:
            yield Problem(
                file=loaded.source,
                line=loaded.places.line_of(place),
                place=place,
                message=f"{image} has Dynamo {version}, but the graph targets {old}",
                fix=f'Set `dynamo: "{version}"`, or change the image.',
            )


def _notes(loaded: LoadedGraph, new: str) -> list[str]:
    old = loaded.graph.dynamo_version
    notes = []
    unknown = [
        f"{place} ({image})"
        for place, image in loaded.graph.images.items()
        if version_in_tag(image) is None
    ]
    if unknown:
        notes.append(f"no tag of Dynamo {old} in {', '.join(unknown)}: change it yourself")
    if is_prerelease(new) and not loaded.graph.images:
        notes.append(
            f"{new} is a pre-release: set `engine.image` if NVIDIA publishes no image with this tag"
        )
    notes += [note for version in (old, new) if (note := about_wheel(version))]
    return [*notes, *engine_notes(loaded.graph, old, new)]


# NIXL of TensorRT-LLM, vLLM and SGLang, and UCX (docs.nvidia.com/dynamo, Deprecations, 2026-11-23).
TRANSFER: Mapping[str, tuple[str, str, str, str]] = {
    "1.5": ("1.3.1", "1.3.2", "1.4.0", "1.21"),
    "1.6": ("1.3.1", "1.4.1", "1.5.0", "1.21"),
    "1.7": ("1.5.2", "1.5.0", "1.5.2", "1.22"),
}
ENGINES = ("trtllm", "vllm", "sglang")
# The newest TensorRT-LLM whose configuration keys were read (engines/trtllm_arguments.py).
KEYS_UNTIL = "1.3.0rc29"


def engine_notes(graph: Graph, old: str, new: str) -> Iterator[str]:
    """The versions in the images of the newest patches, and whether the engine's keys are known."""
    kind, releases = graph.engine.kind, (minor(old), minor(new))
    if kind not in ENGINES or releases[0] == releases[1]:
        return
    name, at = NAMES[kind], ENGINES.index(kind)
    versions = {
        name: [str(getattr(RELEASES[release], kind)) for release in releases],
        "NIXL": [TRANSFER[release][at] for release in releases],
        "UCX": [TRANSFER[release][-1] for release in releases],
    }
    changes = ", ".join(
        f"{program} {first} → {second}"
        for program, (first, second) in versions.items()
        if first != second
    )
    yield f"NVIDIA's images of {RELEASES[releases[1]].dynamo}: {changes}"
    if (release := versions[name][1]) != KEYS_UNTIL and kind == "trtllm":
        yield (
            f"the keys of {name} {release} were not verified, only those up to {KEYS_UNTIL}: "
            f"compare the graph's engine settings with the release notes of {name}"
        )


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
