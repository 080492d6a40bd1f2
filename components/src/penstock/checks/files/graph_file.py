"""A graph YAML as a checked file: settings are where the graph decides them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.checks.files.adapt_fix import adapt_config, replaced_flag
from penstock.checks.files.place import Place, dump, put
from penstock.checks.finding import Fix, steps_of
from penstock.engines.settings import Location, Path
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin
from penstock.graph.renamed_keys import as_written
from penstock.manifests.read import Manifest
from penstock.strict_yaml.places import place_of

# Field → paths of the graph that decide it, the strongest first; `{pool}` is the component. Rules
# name fields as v1beta1 does, from `main` (the main container), `pod` (its PodSpec), `metadata`
# (of the pod) or the component itself. The longest prefix in the table wins. A field that is not
# in the table is below the pool's `pod`.
GRAPH_PATHS: Mapping[Path, tuple[str, ...]] = {
    ("replicas",): ("{pool}.replicas", "{pool}.autoscaling"),
    ("scalingAdapter",): ("{pool}.autoscaling",),
    ("multinode",): ("{pool}.nodes",),
    ("name",): ("{pool}",),
    ("type",): ("{pool}",),
    ("sharedMemorySize",): ("{pool}.shared_memory",),
    ("runtimeVersionOverride",): ("{pool}.image", "engine.image"),
    ("main", "image"): ("{pool}.image", "engine.image"),
    ("main", "resources"): ("{pool}.gpus",),
    ("main", "resources", "limits", "memory"): ("{pool}.resources.memory",),
    ("main", "resources", "requests", "memory"): ("{pool}.resources.memory",),
    ("main", "resources", "limits", "cpu"): ("{pool}.resources.cpu",),
    ("main", "resources", "requests", "cpu"): ("{pool}.resources.cpu",),
    ("main", "resources", "limits", "rdma"): ("kv_transfer.transport", "kv_transfer.rdma_resource"),
    ("main", "securityContext"): ("kv_transfer.transport",),
    ("main", "args"): ("{pool}.args", "engine.args"),
    ("pod", "terminationGracePeriodSeconds"): ("drain_timeout_s",),
    ("metadata", "annotations"): ("{pool}.annotations",),
    ("envFrom",): ("model.token_secret",),
}


def graph_paths(path: Path, pool: str) -> tuple[str, ...]:
    """Dotted paths of the graph that decide the field, the strongest first."""
    for length in range(len(path), 0, -1):
        if (paths := GRAPH_PATHS.get(path[:length])) is not None:
            rest = path[length:] if path[:length] == ("metadata", "annotations") else ()
            return tuple(
                ".".join([path_format.format(pool=pool), *map(str, rest)]) for path_format in paths
            )
    rest = path[1:] if path[0] in ("pod", "main", "metadata") else path
    return (place_of((pool, "pod", *rest)),)


# Paths of a graph whose value is that of the engine's key that they decide.
SAME_VALUE = (
    *("model.context_length", "kv_transfer.buffer_tokens", "kv_transfer.timeout_ms"),
    *("speculation.draft_tokens", "speculation.draft_model"),
    *("model.reasoning_parser", "model.tool_call_parser"),
)


@dataclass(frozen=True)
class GraphFile:
    # The rendered graph.
    manifest: Manifest
    loaded: LoadedGraph

    @property
    def suppressions(self) -> Mapping[str, str]:
        return self.loaded.graph.checks.suppress

    def locate(self, location: Location) -> Place:
        places = self.loaded.places
        if location.what in ("config", "args", "env"):
            what = {"config": "engine_config"}.get(location.what, location.what)
            path = location.path or ("",)
            source = origin(self.loaded, (location.component, what, *path))
            return Place(source.line, source.path, source.override, source.column)
        if location.what == "graph":
            dotted = ".".join(map(str, location.path))
        else:
            paths = (
                graph_paths(location.path, location.component)
                if location.component and location.path
                else (location.component,)
            )
            existing = [path for path in paths if path and places.nearest(path) == path]
            dotted = (existing or list(paths))[0]
        written = as_written(dotted, self.loaded.deprecations)
        line, column = places.position_of(dotted) or (None, None)
        return Place(line, written, places.set_of(dotted), column)

    def adapt(self, fix: Fix, location: Location) -> Fix:
        fix = _with_the_graphs_key(fix)
        if location.component not in self.manifest.pods:
            return fix
        component = self.manifest.deployment.component(location.component)
        fix = adapt_config(fix, location, component, has_file=True, accepts_null=True)
        existing = replaced_flag(fix, component)
        if existing is None:
            return fix
        pastes_args = not (fix.graph or self._decided_by(fix, location))
        if pastes_args:
            fix = fix.and_also(f"Replace the existing `{existing}`.")
        return replace(fix, replaces=existing)

    def paste(self, fix: Fix, location: Location) -> str:
        tree: dict[str, Any] = {}
        for path, value in fix.graph.items():
            put(tree, path.split("."), value)
        if not fix.graph and location.component:
            self._paste_settings(tree, fix, location)
        return dump(tree)

    def _paste_settings(self, tree: dict[str, Any], fix: Fix, location: Location) -> None:
        place = self.locate(location).path
        for key, setting in fix.config.items():
            put(tree, _config_path(key, location, place, is_renamed=bool(fix.replaces)), setting)
        for name, text in fix.env.items():
            if text is not None:
                put(tree, [location.component, "env", name], text)
        if path := self._decided_by(fix, location):
            put(tree, path.split("."), fix.args[1])
        elif fix.args:
            section = "engine" if place.startswith("engine.args") else location.component
            put(tree, [section, "args"], list(fix.args))
        for key, value in fix.fields.items():
            steps = steps_of(key)
            dotted = graph_paths(steps, location.component)[0]
            # The last step may have dots: an annotation's name.
            head = dotted.removesuffix(f".{steps[-1]}")
            put(tree, head.split(".") + ([steps[-1]] if head != dotted else []), value)

    def _decided_by(self, fix: Fix, location: Location) -> str:
        """The path of the graph whose value is the fix's flag; empty if there is none."""
        if not fix.args or fix.args[0] != "".join(map(str, location.path)):
            return ""
        place = self.locate(location).path
        return place if place in SAME_VALUE else ""


def _with_the_graphs_key(fix: Fix) -> Fix:
    """The text names the key that the YAML sets, instead of the flag or variable behind it."""
    if len(fix.graph) != 1:
        return fix
    ((path, setting),) = fix.graph.items()
    text = fix.text
    if fix.args:
        text = text.replace(f"{fix.args[0]} {setting}", f"{path}: {setting}")
    for name in fix.env:
        text = text.replace(name, path)
    return replace(fix, text=text)


def _config_path(key: str, location: Location, place: str, *, is_renamed: bool) -> list[str]:
    """Where a graph has the engine's key: the path that decides it, or the key as it is spelled
    there. A key that replaces another one goes into the same section."""
    if is_renamed and place.startswith("engine.config."):
        return ["engine", "config", *key.split(".")]
    if "." in key and location.what == "config" and location.path == (key,):
        # `section.key` is one key in vLLM's file.
        return [location.component, "config", place.partition(".config.")[2] or key]
    is_same = key.replace("_", "-") == ".".join(map(str, location.path)).replace("_", "-")
    if is_same and (place in SAME_VALUE or place.startswith(f"{location.component}.config.")):
        return place.split(".")
    return [location.component, "config", *key.split(".")]
