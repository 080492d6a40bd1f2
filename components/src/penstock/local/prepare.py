"""What `up` does before it starts a process: open, check and parse the graph, then adapt it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock.checks.run import ONLY_ON_A_CLUSTER, require_sound
from penstock.engines.engine import NoSimulation, Simulation
from penstock.engines.parsers import (
    NotParsed,
    Parsed,
    ParseResult,
    Rejected,
    check_launches,
    run_child,
)
from penstock.engines.table import simulate
from penstock.errors import GraphError, InputError, LaunchError, Problem
from penstock.graph.gateway import GatewaySection
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin
from penstock.local.adapt import adapt, require_pairs
from penstock.local.deployment import LocalDeployment, Overrides
from penstock.local.gpus.needs import gpu_notes
from penstock.local.machine import Machine, model_folder
from penstock.local.predicted_timing import TimingSource
from penstock.local.state import StateDir
from penstock.local.versions import Interpreters, interpreters
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.source import Source, open_source

_FLAG_IN_MESSAGE = re.compile(r"--[A-Za-z][\w.-]*")
_OPTION_IN_MESSAGE = re.compile(r"\b[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*\b")


class Preparer:
    """Prepares the file at the start and after each edit.

    Parsing an engine's command line takes about a second, so parsed launches are cached; an edit of
    `replicas` changes none.
    """

    def __init__(
        self,
        path: Path,
        sets: Sequence[str],
        machine: Machine,
        overrides: Overrides,
        *,
        is_checked: bool = True,
        timing: TimingSource | None = None,
        has_gateway: bool = False,
    ) -> None:
        self._path, self._sets, self._is_checked = path, tuple(sets), is_checked
        self._machine, self._overrides, self._timing = machine, overrides, timing
        self._has_gateway = has_gateway
        self._parsed: dict[tuple[str, ...], Parsed | NotParsed] = {}

    def prepare(self, starting: bool = False) -> LocalDeployment:
        """The programs to run; any PenstockError of loading, rendering, reading or parsing.

        ``starting``: also require what the first completion needs: a replica of each role, and
        decode workers for prefill workers.
        """
        source = open_source(self._path, self._sets)
        warnings = require_sound(source, ignored=ONLY_ON_A_CLUSTER) if self._is_checked else ()
        _require_model(source)
        versions, version_notes = interpreters(source)
        self._parse(source, versions)
        timing = self._timing(source) if self._timing else None
        graph = source.loaded.graph if source.loaded else None
        section = graph.gateway if graph else None
        gateway = section or GatewaySection()
        context = graph.model.context_length if graph else None
        deployment = adapt(
            source.deployment,
            self._machine,
            replace(self._overrides, limits=gateway.above_defaults(context)),
            model_folder,
            self._simulate,
            self._settings,
            timing,
            versions,
        )
        if starting:
            require_replicas(source, deployment)
            require_pairs(source.deployment, deployment.programs)
        # Graphs of the same name may share an etcd: the digest of the folder keeps them apart.
        digest = StateDir(self._path).path.name.rsplit("-", 1)[1]
        notes = (*deployment.notes, *self._gpu_notes(source, deployment), *version_notes, *warnings)
        if section is not None and not self._has_gateway:
            notes += ("gateway: not started, as no API keys are given: add `--gateway FILE`",)
        namespace = f"{deployment.namespace}-{digest}"
        gateway = gateway.for_context(context)
        return replace(deployment, namespace=namespace, notes=notes, gateway=gateway)

    def _gpu_notes(self, source: Source, deployment: LocalDeployment) -> tuple[str, ...]:
        if not any(program.gpus for program in deployment.programs):
            return ()
        hardware = source.loaded.graph.hardware if source.loaded else None
        gpus = self._machine.read_gpus().gpus
        return gpu_notes(deployment.programs, gpus, hardware.gpu if hardware else None)

    def _parse(self, source: Source, versions: Mapping[str, Interpreters]) -> None:
        """Parse each new launch, also of engines that run: an error is clearer than a crash."""
        new = [
            (component, launch)
            for component in source.deployment.components
            for launch in component.launches
            if _key(component, launch) not in self._parsed
        ]
        new.sort(key=lambda item: self._python(item[0], versions))
        verdicts: list[ParseResult] = []
        for python, group in groupby(new, key=lambda item: self._python(item[0], versions)):
            run = partial(run_child, python=python)
            launches = [(component.name, launch) for component, launch in group]
            verdicts += check_launches(launches, run=run)
        refused = [v for v in verdicts if isinstance(v, Rejected)]
        if refused:
            raise launch_error(refused, source.deployment.source, source.loaded)
        for (component, launch), verdict in zip(new, verdicts, strict=True):
            if not isinstance(verdict, Rejected):
                self._parsed[_key(component, launch)] = verdict

    def _python(self, component: Component, versions: Mapping[str, Interpreters]) -> str:
        """The Python with the component's version of Dynamo, whose parsers read its launches."""
        other = versions.get(component.name)
        return self._machine.python if other is None else other.python

    def _simulate(self, component: Component, launch: Launch) -> Simulation | NoSimulation:
        return simulate(component, launch, self._parsed[_key(component, launch)])

    def _settings(self, component: Component, launch: Launch) -> Mapping[str, Any]:
        parsed = self._parsed[_key(component, launch)]
        return parsed.settings if isinstance(parsed, Parsed) else {}


def _key(component: Component, launch: Launch) -> tuple[str, ...]:
    """Everything that the parser reads of a launch, and the image with its version."""
    env = (f"{k}={v}" for k, v in sorted(launch.env.items()))
    files = (f"{k}={v}" for k, v in sorted(launch.files.items()))
    return (component.name, component.image, *launch.argv, "", *env, "", *files)


def _require_model(source: Source) -> None:
    """InputError when a mocker graph sets `model.path` and the folder is missing."""
    loaded = source.loaded
    if loaded is None or loaded.graph.engine.kind != "mocker" or loaded.graph.model.path is None:
        return
    if model_folder(loaded.graph.model.path) is None:
        raise InputError(
            f"{loaded.graph.model.path!r} is not a model folder on this machine "
            "(config.json and tokenizer.json)",
            file=loaded.source,
            line=loaded.places.line_of("model.path"),
            place="model.path",
            fix="Set it to an existing model folder, or remove `path` to use the packaged "
            "tokenizer.",
        )


def require_replicas(source: Source, deployment: LocalDeployment) -> None:
    """GraphError when a role has no replica: the first completion could not succeed."""
    served = {p.role for p in deployment.programs if p.replicas}
    empty = [p for p in deployment.programs if p.role not in served]
    if not empty:
        return
    loaded = source.loaded
    raise GraphError(
        *(
            Problem(
                file=source.deployment.source,
                line=loaded.places.line_of(f"{p.component}.replicas") if loaded else None,
                place=f"{p.component}.replicas",
                message="is 0, so no request can be served",
                fix="Start with at least 1; a running graph can be scaled to 0.",
            )
            for p in empty
        )
    )


def launch_error(
    refused: Iterable[Rejected], source: str, loaded: LoadedGraph | None
) -> LaunchError:
    """One error with each problem once: every pool rejects an option that all pools share."""
    problems = [_located(r, source, loaded) for r in refused]
    return LaunchError(*dict.fromkeys(problems))


def _located(refused: Rejected, source: str, loaded: LoadedGraph | None) -> Problem:
    problem = replace(refused.problem, file=source)
    if loaded is None:
        return problem
    for place in _places(refused):
        set_at = origin(loaded, place)
        if not set_at.default:
            return replace(problem, line=set_at.line, place=set_at.path)
    return replace(problem, place=refused.component)


def _places(refused: Rejected) -> Iterator[Sequence[str]]:
    """Where the engine's message may point: a flag, or an option of its configuration file."""
    for flag in _FLAG_IN_MESSAGE.findall(refused.engine_message):
        yield (refused.component, "args", flag)
    # The longest path is the most specific: `engine.speedup_ratio` before `engine`.
    options = _OPTION_IN_MESSAGE.findall(refused.engine_message)
    for option in sorted(options, key=lambda name: -name.count(".")):
        yield (refused.component, "engine_config", *option.split("."))
