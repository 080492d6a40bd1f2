"""Sound graphs and manifests, and functions that change one setting in them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from penstock.checks.finding import Finding, Level
from penstock.checks.registry import RULES, by_id
from penstock.checks.rule import Rule
from penstock.checks.run import check_file
from penstock.engines.releases import DEPLOYED
from penstock.serving.understand import Hints
from tests.support.scripted_engines import ScriptedEngines

MODEL = {
    "id": "openai/gpt-oss-120b",
    "context_length": 32768,
    "reasoning_parser": "gpt_oss",
    "tool_call_parser": "harmony",
    "cache": {"pvc": "model-cache"},
}
B200 = {"gpu": "b200", "gpus_per_node": 8}
TRTLLM_CONFIG = {
    "moe_config": {"backend": "TRTLLM"},
    "enable_chunked_prefill": True,
    "enable_iter_perf_stats": False,
    "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.85},
}
# The bases of most cases: none has errors or warnings (asserted in test_rules.py).
TRTLLM_DISAGG: Mapping[str, Any] = {
    "model": MODEL,
    "hardware": B200,
    "engine": {
        "kind": "trtllm",
        "config": {**TRTLLM_CONFIG, "cache_transceiver_config": {"transceiver_runtime": "PYTHON"}},
    },
    "prefill": {
        "replicas": 2,
        "gpus": 1,
        "shared_memory": "64Gi",
        "config": {"max_batch_size": 32, "max_num_tokens": 8192},
    },
    "decode": {
        "replicas": 1,
        "gpus": 4,
        "shared_memory": "64Gi",
        "config": {"max_batch_size": 256, "max_num_tokens": 8192},
    },
    "kv_transfer": {"transport": "rdma", "timeout_ms": 600000},
}
TRTLLM_AGG: Mapping[str, Any] = {
    "model": MODEL,
    "hardware": B200,
    "engine": {"kind": "trtllm", "config": TRTLLM_CONFIG},
    "worker": {
        "replicas": 2,
        "gpus": 4,
        "shared_memory": "64Gi",
        "config": {"max_batch_size": 64, "max_num_tokens": 8192},
    },
}
VLLM_DISAGG: Mapping[str, Any] = {
    "model": MODEL,
    "hardware": B200,
    "engine": {"kind": "vllm", "config": {"block-size": 64, "max-num-seqs": 256}},
    "prefill": {"replicas": 2, "gpus": 1, "shared_memory": "64Gi"},
    "decode": {"replicas": 1, "gpus": 4, "shared_memory": "64Gi"},
    "kv_transfer": {"transport": "rdma"},
}
VLLM_AGG: Mapping[str, Any] = {
    "model": MODEL,
    "hardware": B200,
    "engine": {"kind": "vllm", "config": {"block-size": 64, "max-num-seqs": 256}},
    "worker": {"replicas": 2, "gpus": 2, "shared_memory": "64Gi"},
}
SGLANG_DISAGG: Mapping[str, Any] = {
    "model": MODEL,
    "hardware": B200,
    "engine": {"kind": "sglang", "config": {"page-size": 64}},
    "prefill": {"replicas": 2, "gpus": 2, "shared_memory": "64Gi"},
    "decode": {"replicas": 1, "gpus": 2, "shared_memory": "64Gi"},
    "kv_transfer": {"transport": "rdma"},
}
SGLANG_AGG: Mapping[str, Any] = {
    "model": MODEL,
    "hardware": B200,
    "engine": {"kind": "sglang", "config": {"page-size": 64}},
    "worker": {"replicas": 2, "gpus": 2, "shared_memory": "64Gi"},
}
BASES = {
    "TRTLLM_DISAGG": TRTLLM_DISAGG,
    "TRTLLM_AGG": TRTLLM_AGG,
    "VLLM_DISAGG": VLLM_DISAGG,
    "VLLM_AGG": VLLM_AGG,
    "SGLANG_DISAGG": SGLANG_DISAGG,
    "SGLANG_AGG": SGLANG_AGG,
}
# Rules of `--engine-dry-run`.
DRY_RUN = {"PS186", "PS187", "PS188"}
REMOVE = object()
# What `vary` puts the two values in place of, and a value of which there is none.
X, OMIT = object(), object()
# Ten times as fast as PyYAML's own: a thousand cases are written while the tests are collected.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DUMPER(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """It writes a text of several lines as a block, as people do."""


def _write_text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


DUMPER.add_representer(str, _write_text)


@dataclass(frozen=True)
class Case:
    """``bad`` violates the rule, ``near`` almost does; both are complete files."""

    rule: str
    bad: str
    near: str
    _: KW_ONLY
    gpu: str | None = None
    # For the rule's page, see examples.py. Whether this case is the example, instead of the first.
    is_example: bool = False
    # The repair of `bad`, if not the default: `near`, or another complete file.
    is_repaired_by_near: bool = False
    fixed: str = ""
    # Further rules that `bad` violates and its repair does not.
    also: tuple[str, ...] = ()


class Words(tuple[str, ...]):
    """Arguments that take the place of one `X`."""

    def __new__(cls, *arguments: str) -> Words:
        return super().__new__(cls, arguments)


def vary(rule: str, write: Callable[..., str], *args: Any, **settings: Any) -> Callable[..., Case]:
    """`vary(rule, write, X)(bad, near)` is the case whose files ``write`` makes of ``args`` and
    ``settings`` with ``bad`` or ``near`` in place of `X`. OMIT leaves out the argument or the key.
    Without arguments, ``bad`` and ``near`` are the arguments.
    """
    template = [*args] if args or settings else [X]

    def text(variant: Any) -> str:
        return write(*_filled(template, variant), **_filled(settings, variant))

    def case(bad: Any, near: Any, **options: Any) -> Case:
        return Case(rule, text(bad), text(near), **options)

    return case


def _filled(template: Any, variant: Any) -> Any:
    if template is X:
        return variant
    if isinstance(template, dict):
        filled = {key: _filled(value, variant) for key, value in template.items()}
        return {key: value for key, value in filled.items() if value is not OMIT}
    if isinstance(template, list):
        values = [_filled(value, variant) for value in template]
        return [
            item
            for value in values
            if value is not OMIT
            for item in (value if isinstance(value, Words) else (value,))
        ]
    return template


# The changed text of `graph` or `manifest` → its base as a text.
_BASES: dict[str, Callable[[], str]] = {}


def base_of(text: str) -> str:
    """The file of which a case is a change; empty if it is not known."""
    return _BASES[text]() if text in _BASES else ""


def is_graph(text: str) -> bool:
    return "apiVersion:" not in text and "\nmodel:" in f"\n{text}"


def dump(*documents: Any) -> str:
    return str(yaml.dump_all(documents, Dumper=DUMPER, sort_keys=False))


def graph(base: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> str:
    """The base with values changed, as YAML. Keys are paths with `/` between the steps
    (`decode/config/max_batch_size`); the value REMOVE removes the key."""
    text = dump(_changed(base, changes or {}))
    _BASES[text] = lambda: dump(dict(base))
    return text


def manifest(base: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> str:
    """What the chart makes of ``base`` (a graph), with changes to its documents. A path begins
    with the document: `dgd` for the deployment, or a ConfigMap's component (`decode`), whose
    engine file is then a mapping: `decode/max_batch_size`. In `dgd` a component is found by its
    name and so are containers and variables: `dgd/spec/components/decode/replicas`,
    `dgd/spec/components/decode/podTemplate/spec/containers/main/env/UCX_TLS/value`."""
    documents = copy.deepcopy(list(rendered(dump(dict(base)))))
    for path, value in (changes or {}).items():
        _change_document(documents, path.split("/"), value)
    text = dump(*documents)
    _BASES[text] = lambda: dump(*rendered(dump(dict(base))))
    return text


# `graph` and `manifest` of each base.
trtllm_disagg, trtllm_agg = partial(graph, TRTLLM_DISAGG), partial(graph, TRTLLM_AGG)
vllm_disagg, vllm_agg = partial(graph, VLLM_DISAGG), partial(graph, VLLM_AGG)
sglang_disagg, sglang_agg = partial(graph, SGLANG_DISAGG), partial(graph, SGLANG_AGG)
trtllm_disagg_dgd, trtllm_agg_dgd = partial(manifest, TRTLLM_DISAGG), partial(manifest, TRTLLM_AGG)
vllm_disagg_dgd, vllm_agg_dgd = partial(manifest, VLLM_DISAGG), partial(manifest, VLLM_AGG)
sglang_disagg_dgd, sglang_agg_dgd = partial(manifest, SGLANG_DISAGG), partial(manifest, SGLANG_AGG)


@cache
def check(
    text: str, *, gpu: str | None = None, only: str | None = None, operator: str = DEPLOYED
) -> tuple[Finding, ...]:
    """The findings of a file with ``text``, cached because several tests use the same text.

    ``only``: the rule to apply, instead of all; ``operator``: the operator's version.
    """
    rules = RULES if only is None else (by_id(only),)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        # "\udce9" in a text is the byte 0xe9, which is not UTF-8.
        path.write_text(text, "utf-8", errors="surrogateescape")
        engines = ScriptedEngines(Path(folder)) if DRY_RUN & {rule.id for rule in rules} else None
        hints = Hints(gpu=gpu, operator=Version(operator))
        return check_file(path, hints, rules=rules, engines=engines)


def by_rule(rules: Iterable[Rule]) -> list[pytest.ParameterSet]:
    """All tests of a rule run on one worker, as `check` caches what it has checked."""
    group = pytest.mark.xdist_group
    return [pytest.param(rule, id=rule.id, marks=group(rule.id)) for rule in rules]


def fired(text: str, *, gpu: str | None = None) -> set[str]:
    return {finding.rule for finding in check(text, gpu=gpu)}


def found(text: str, rule: str) -> list[Finding]:
    return [finding for finding in check(text) if finding.rule == rule]


def only(text: str, rule: str) -> Finding:
    (finding,) = found(text, rule)
    return finding


def levels(text: str, rule: str) -> list[str]:
    return [str(finding.level) for finding in found(text, rule)]


def loud(text: str) -> list[str]:
    """Errors and warnings, one line each."""
    levels = (Level.ERROR, Level.WARNING)
    return [f"{f.rule} {f.place}: {f.message}" for f in check(text) if f.level in levels]


def _changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    tree = copy.deepcopy(dict(base))
    for path, value in changes.items():
        _put(tree, path.split("/"), value)
    return tree


def _put(tree: Any, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        tree = _step(tree, step)
    if value is REMOVE:
        if isinstance(tree, list):
            tree.remove(_step(tree, path[-1]))
        else:
            tree.pop(path[-1].replace("~1", "/"), None)
    elif isinstance(tree, list):
        tree[:] = [item for item in tree if _name(item) != path[-1]] + [value]
    else:
        tree[path[-1].replace("~1", "/")] = copy.deepcopy(value)


def _step(tree: Any, step: str) -> Any:
    if isinstance(tree, list):
        if step.isdigit():
            return tree[int(step)]
        matches = [item for item in tree if _name(item) == step]
        if not matches:
            tree.append({"name": step})
            return tree[-1]
        return matches[0]
    return tree.setdefault(step.replace("~1", "/"), {})


def _name(item: Any) -> Any:
    return item.get("name") if isinstance(item, dict) else item


@cache
def rendered(text: str) -> tuple[dict[str, Any], ...]:
    from penstock.graph.load import parse_graph
    from penstock.manifests.source import render_graph

    rendered = render_graph(parse_graph(text, "case.yaml"))
    return tuple(dict(copy.deepcopy(item)) for item in rendered.objects)


def _change_document(documents: list[dict[str, Any]], path: list[str], value: Any) -> None:
    head, *rest = path
    if head == "dgd":
        target = next(d for d in documents if d["kind"] == "DynamoGraphDeployment")
        _put(target, rest, value)
        return
    for document in documents:
        labels = document["metadata"].get("labels", {})
        if document["kind"] == "ConfigMap" and labels.get("app.kubernetes.io/component") == head:
            (name,) = document["data"]
            settings = yaml.load(document["data"][name], LOADER)
            _put(settings, rest, value)
            document["data"][name] = yaml.dump(settings, Dumper=DUMPER)
            return
    raise KeyError(head)
