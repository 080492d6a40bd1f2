"""Recognize files of other kinds, so that one message says what the file is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from penstock.errors import GraphError, Problem, ProblemKind
from penstock.strict_yaml.document import Document
from penstock.strict_yaml.events import position_of_event
from penstock.strict_yaml.loader import DEEPEST_OBJECT, SafeLoader
from penstock.text.names import nearest

# Every Kubernetes object has both at its top level; a graph has neither.
_MANIFEST = (
    re.compile(r"^apiVersion\s*:", re.MULTILINE),
    re.compile(r"^kind\s*:\s*[\"']?(?P<kind>[\w.-]*)", re.MULTILINE),
)
# An object that lacks its apiVersion or its kind.
_DYNAMO = re.compile(r"Dynamo[A-Z]|nvidia\.com/")
DEPLOYMENT = "DynamoGraphDeployment"
START = "Write a graph with `penstock init`, or copy one with `penstock init --example quickstart`."
OVERLAY = "Build the overlay with `kubectl kustomize DIR > FILE`, then pass FILE."
KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml")
REQUIRED = ("model", "engine")
SIMILAR = 0.75  # `modle` is `model`; `node` is not
# Keys of which a file has at least as many as the number says → what it is, and what to do.
OTHER_FILES: tuple[tuple[frozenset[str], int, str, str], ...] = (
    (frozenset({"apiVersion", "appVersion", "version"}), 2,
     "the Chart.yaml of a Helm chart",
     "Render the chart with `helm template DIR > FILE`, then pass FILE."),
    (frozenset({"bases", "patches", "patchesStrategicMerge", "patchesJson6902", "namePrefix",
                "nameSuffix", "commonLabels", "configMapGenerator", "secretGenerator",
                "generatorOptions", "replacements"}), 1, "a kustomization.yaml",
     OVERLAY),
    (frozenset({"services"}), 1, "a Compose file", START),
    (frozenset({"modelArtifacts"}), 1, "the values file of another Helm chart", START),
    (frozenset({"jobs", "on"}), 2, "a workflow of GitHub Actions", START),
    (frozenset({"architectures", "model_type", "hidden_size", "vocab_size"}), 2,
     "the config.json of a model", "Name its folder in `model.path` of a graph."),
    (frozenset({"requests", "input", "output", "arrival", "trace", "prefix", "conversation"}), 2,
     "a workload", "Pass it to `penstock simulate` or `penstock plan` with --workload."),
    (frozenset({"replicaCount", "image", "service", "ingress", "resources", "serviceAccount",
                "servingEngineSpec", "nameOverride", "fullnameOverride",
                "imagePullSecrets", "podAnnotations", "tolerations", "affinity"}), 2,
     "the values file of another Helm chart", START),
    (frozenset({"tensor_parallel_size", "tensor-parallel-size", "max_num_seqs", "max-num-seqs",
                "max_batch_size", "max_num_tokens", "max_model_len", "max-model-len",
                "kv_cache_config", "enable_chunked_prefill", "gpu_memory_utilization",
                "gpu-memory-utilization", "moe_config", "cuda_graph_config"}), 1,
     "the configuration of an engine", "Put it under `engine.config` of a graph."),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Header:
    """The first `kind` of a file of Kubernetes objects."""

    kind: str
    # From 1: that of apiVersion.
    line: int


def kind_of_manifest(text: str) -> str | None:
    """The first `kind` of a file of Kubernetes objects; None if it is not one."""
    header = _header(text)
    return header.kind if header else None


def _header(text: str) -> _Header | None:
    version, kind = (pattern.search(text) for pattern in _MANIFEST)
    if version and kind:
        return _Header(kind=kind["kind"], line=text.count("\n", 0, version.start()) + 1)
    if "apiVersion" not in text and _DYNAMO.search(text) is None:
        return None  # most graphs; the others are parsed twice
    keys = _top_level(text)
    version_event, kind_event = keys.get("apiVersion"), keys.get("kind")
    is_both = version_event is not None and kind_event is not None
    first = version_event or kind_event
    texts = [event.value for event in (version_event, kind_event) if event is not None]
    if first is None or not (is_both or any(map(_DYNAMO.match, texts))):
        return None
    return _Header(kind=kind_event.value if kind_event else "", line=position_of_event(first).line)


def _top_level(text: str) -> dict[str, yaml.ScalarEvent]:
    """The scalars at the top level of the first document: also of JSON, whose keys are quoted."""
    scalars: dict[str, yaml.ScalarEvent] = {}
    key: yaml.Event | None = None
    depth = 0
    try:
        for event in yaml.parse(text, SafeLoader):
            if isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
                if depth == 0:
                    break
            elif isinstance(event, yaml.NodeEvent):
                if depth == 1 and key is None:
                    key = event
                elif depth == 1:
                    if isinstance(key, yaml.ScalarEvent) and isinstance(event, yaml.ScalarEvent):
                        scalars[key.value] = event
                    key = None
                depth += isinstance(event, yaml.CollectionStartEvent)
                if depth > DEEPEST_OBJECT:
                    break  # libyaml takes minutes for 50,000 levels
    except yaml.YAMLError:
        pass  # the reader reports it
    return scalars


def require_no_manifest(text: str, source: str) -> None:
    """GraphError for Kubernetes objects, where only a graph will do."""
    header = _header(text)
    if header is None:
        return
    kind, line = header.kind, header.line
    fix = "Name the graph YAML."
    # Objects such as ConfigMaps may precede the deployment.
    deployment = next((m for m in _MANIFEST[1].finditer(text) if m["kind"] == DEPLOYMENT), None)
    if deployment is not None:
        kind, line = DEPLOYMENT, text.count("\n", 0, deployment.start()) + 1
    if kind == DEPLOYMENT:
        fix = "Name the graph YAML; `penstock check`, `explain` and `up` also read a manifest."
    message = f"is a Kubernetes manifest ({kind}), and this command needs a graph"
    problem = Problem(file=source, line=line, place="kind", message=message, fix=fix)
    raise GraphError(problem)


def _is_compose(values: Mapping[str, Any]) -> bool:
    """Whether the services are those of Compose, which has `model` and `models`, too."""
    services = values.get("services")
    return (
        "engine" not in values
        and isinstance(services, Mapping)
        and any(isinstance(s, Mapping) and {"image", "build"} & set(s) for s in services.values())
    )


def require_graph_keys(document: Document, known: Iterable[str], source: str) -> None:
    """GraphError for a mapping that is not a graph at all, instead of one for each key."""
    values: Mapping[str, Any] = document.values
    # First the files that have keys of a known format, then those that have no key of a graph.
    # A mistyped `modle` or `Engine` is an unknown key, for which a name is suggested.
    has_required = any(nearest(str(key), REQUIRED, SIMILAR) for key in values)
    if (has_required and not _is_compose(values)) or not values:
        return
    row = next((row for row in OTHER_FILES if len(row[0] & set(values)) >= row[1]), None)
    if row is not None:
        keys, _, name, fix = row
        place = next(key for key in values if key in keys)
        message = f"the file is {name}, not a graph"
    elif PurePath(source).name in KUSTOMIZATION:
        place, fix = next(iter(values)), OVERLAY
        message = "the file is a kustomization.yaml, not a graph"
    elif not document.problems and set(values).isdisjoint(known):
        place, fix = next(iter(values)), START
        message = "the file is not a graph: none of its keys is a section of a graph"
    else:
        return
    line, column = document.positions.get(place, (None, None))
    raise GraphError(
        Problem(
            file=source,
            line=line,
            column=column,
            place=place,
            message=message,
            fix=fix,
            kind=ProblemKind.OTHER_FILE,
        )
    )
