"""Recognize files of other kinds, so that one message says what the file is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import GraphError, Problem
from penstock.nearest import nearest
from penstock.strict_yaml.document import Document

# Every Kubernetes object has both at its top level; a graph has neither.
_MANIFEST = (
    re.compile(r"^apiVersion\s*:", re.MULTILINE),
    re.compile(r"^kind\s*:\s*[\"']?(?P<kind>[\w.-]*)", re.MULTILINE),
)
START = "Start from a graph in dynamo_graphs/, or write one with `penstock plan`."
REQUIRED = ("model", "engine")
SIMILAR = 0.75  # `modle` is `model`; `node` is not
# Keys of which a file has at least as many as the number says → what it is, and what to do.
OTHER_FILES: tuple[tuple[frozenset[str], int, str, str], ...] = (
    (frozenset({"services"}), 1, "a Compose file", START),
    (frozenset({"jobs", "on"}), 2, "a workflow of GitHub Actions", START),
    (frozenset({"architectures", "model_type", "hidden_size", "vocab_size"}), 2,
     "the config.json of a model", "Name its folder in `model.path` of a graph."),
    (frozenset({"requests", "input", "output", "arrival", "trace", "prefix", "conversation"}), 2,
     "a workload", "Pass it to `penstock simulate` or `penstock plan` with --workload."),
    (frozenset({"replicaCount", "image", "service", "ingress", "resources", "serviceAccount",
                "servingEngineSpec", "modelArtifacts", "nameOverride", "fullnameOverride",
                "imagePullSecrets", "podAnnotations", "tolerations", "affinity"}), 2,
     "the values file of another Helm chart", START),
    (frozenset({"tensor_parallel_size", "tensor-parallel-size", "max_num_seqs", "max-num-seqs",
                "max_batch_size", "max_num_tokens", "max_model_len", "max-model-len",
                "kv_cache_config", "enable_chunked_prefill", "gpu_memory_utilization",
                "gpu-memory-utilization", "moe_config", "cuda_graph_config"}), 1,
     "the configuration of an engine", "Put it under `engine.config` of a graph."),
)  # fmt: skip


def kind_of_manifest(text: str) -> str | None:
    """The first `kind` of a file of Kubernetes objects; None if it is not one."""
    version, kind = (pattern.search(text) for pattern in _MANIFEST)
    return kind["kind"] if version and kind else None


def require_no_manifest(text: str, source: str) -> None:
    """GraphError for Kubernetes objects, where only a graph will do."""
    kind = kind_of_manifest(text)
    if kind is None:
        return
    line = text[: _MANIFEST[0].search(text).start()].count("\n") + 1  # type: ignore[union-attr]
    message = f"is a Kubernetes manifest ({kind}), and this command needs a graph"
    fix = "Name the graph YAML; `penstock check`, `explain` and `up` also read a manifest."
    raise GraphError(Problem(file=source, line=line, place="kind", message=message, fix=fix))


def require_graph_keys(document: Document, known: Iterable[str], source: str) -> None:
    """GraphError for a mapping that is not a graph at all, instead of one for each key."""
    values: Mapping[str, Any] = document.values
    # A mistyped `modle` or `Engine` is an unknown key, for which a name is suggested.
    if any(nearest(str(key), REQUIRED, SIMILAR) for key in values) or not values:
        return
    found = next((row for row in OTHER_FILES if len(row[0] & set(values)) >= row[1]), None)
    if found is not None:
        keys, _, name, fix = found
        place = next(key for key in values if key in keys)
        message = f"the file is {name}, not a graph"
    elif not document.problems and set(values).isdisjoint(known):
        place, fix = next(iter(values)), START
        message = "the file is not a graph: none of its keys is a section of a graph"
    else:
        return
    line, column = document.positions.get(place, (None, None))
    raise GraphError(
        Problem(file=source, line=line, column=column, place=place, message=message, fix=fix)
    )
