"""Asks the engines' own code about the workers of a deployment: `check --engine-dry-run`.

`checks/run.py` calls `new_results` after the rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packaging.version import Version

from penstock.checks.files import CheckedFile
from penstock.checks.finding import Finding, Fix, Level, RuleResult
from penstock.checks.registry import by_id
from penstock.checks.rule import Rule
from penstock.checks.version_range import NAMES
from penstock.engines.dry_run.model_folders import copied_folder, folder_for
from penstock.engines.dry_run.process import EngineProcesses
from penstock.engines.dry_run.protocol import (
    Accepted,
    Configuration,
    Hardware,
    Outcome,
    Refused,
    Resolved,
    Undecided,
)
from penstock.engines.settings import COMMON_SETTINGS, Location
from penstock.environments.paths import installed_python
from penstock.errors import MissingToolError
from penstock.hardware import GPUS
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software
from penstock.serving.worker import Worker

# Endings of names that a sentence leaves out: "decode context parallel" of
# `decode-context-parallel-size`.
LEFT_OUT = ("_size", "_config", "_type")
SHORTEST = 4  # letters of a name: shorter ones, such as `tp`, are parts of other words
# Words of sentences that name a setting in another way → a flag without dashes.
OTHER_WORDS: Mapping[str, str] = {
    "attention_heads": "tensor-parallel-size",
    "data_parallel": "data-parallel-size",
    "dp_size": "data-parallel-size",
    "tp_size": "tensor-parallel-size",
    "pp_size": "pipeline-parallel-size",
    "pipeline_parallel": "pipeline-parallel-size",
    "available_gpus": "tensor-parallel-size",
    "eplb": "enable-eplb",
    "async_scheduling": "async-scheduling",
    "asynchronous_scheduling": "async-scheduling",
    "kv_connector": "kv-transfer-config",
    "speculative": "speculative-config",
    "speculator": "speculative-config",
    "lora": "enable-lora",
    "chunked_prefill_size": "chunked-prefill-size",
    "page_size": "page-size",
}


FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")


def places_of(sentence: str, worker: Worker) -> tuple[list[Location], list[Location]]:
    """The places of the settings that the sentence names: of those that are set, first the one
    whose name has the most letters in the sentence, and of those that are not."""
    candidates = sorted(
        set(_named(_plain(sentence), worker)), key=lambda named: (-named[0], named[1])
    )
    keys = dict.fromkeys(key for _, _, key in candidates)
    # `--kv-transfer-config` in the sentence: where it would be, if it is not set.
    unset = dict.fromkeys(flag for flag in FLAG.findall(sentence) if worker.get(flag) is None)
    set_places = [worker.settings.values[key].location for key in keys]
    return set_places, [worker.config_location(flag) for flag in unset]


def _named(text: str, worker: Worker) -> Iterator[tuple[int, int, str]]:
    """(letters, position, key) of each set setting that the sentence names."""
    for key, setting in worker.settings.values.items():
        inner = setting.value if isinstance(setting.value, Mapping) else {}
        names = [_plain(key), *(_plain(str(name)) for name in inner)]
        names += [name.removesuffix(end) for name in names for end in LEFT_OUT]
        names += [_plain(key).removeprefix("enable_")]
        words = [word for word, flag in OTHER_WORDS.items() if _plain(flag) == _plain(key)]
        for name in dict.fromkeys((*names, *words)):
            match = re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text)
            if match and len(name) >= SHORTEST:
                is_other = name in words and name not in names
                yield (0 if is_other else len(name)), match.start(), key


def _plain(text: str) -> str:
    """Names as identifiers: `--max-num-seqs` and "max num seqs" are `max_num_seqs`."""
    return re.sub(r"[\s\-_]+", "_", text.lower())


POOLS_DIFFER = by_id("PS188")
# Field of `Resolved` → how messages call it, and the key that sets it.
COMPARED: Mapping[str, tuple[str, Mapping[Engine, str]]] = {
    "attention_backend": (
        "attention backend",
        dict.fromkeys((Engine.VLLM, Engine.SGLANG), "attention-backend"),
    ),
    "kv_dtype": ("KV cache type", COMMON_SETTINGS["kv_dtype"]),
    "connector": (
        "connector",
        {
            Engine.VLLM: "kv-transfer-config.kv_connector",
            Engine.SGLANG: "disaggregation-transfer-backend",
        },
    ),
    "block_size": ("KV block size", COMMON_SETTINGS["block_size"]),
}
ROUTER_FLAG, ROUTER_VARIABLE = "--kv-cache-block-size", "DYN_KV_CACHE_BLOCK_SIZE"
# For SGLang only these must be equal: it transfers pages between any attention backends.
COUNTS_FOR_ALL = ("kv_dtype", "connector", "block_size")


def compare_pools(
    deployment: ServingDeployment, resolved: Mapping[str, Resolved]
) -> Iterator[RuleResult]:
    """``resolved``: the resolved configuration of each component that its engine accepts."""
    for prefill, decode in deployment.pairs:
        if prefill.name in resolved and decode.name in resolved:
            yield from _pair(prefill, decode, resolved)
    yield from _router(deployment, resolved)


def _pair(
    prefill: Worker, decode: Worker, resolved: Mapping[str, Resolved]
) -> Iterator[RuleResult]:
    is_vllm = decode.engine is Engine.VLLM
    for field, (what, keys) in COMPARED.items():
        first = getattr(resolved[prefill.name], field)
        second = getattr(resolved[decode.name], field)
        counts = is_vllm or field in COUNTS_FOR_ALL
        if not first or not second or first == second or not counts:
            continue
        is_size, key = field == "block_size", keys[decode.engine]
        if is_vllm and is_size and second % first == 0 and decode.tp >= prefill.tp:
            continue  # vLLM's NIXL connector converts whole blocks
        if prefill.get(key) is not None and decode.get(key) is not None:
            continue  # the rules about pools compare what is set
        yield RuleResult(
            location=decode.config_location(key),
            message=f"{decode.name} gets the {what} {second}, but {prefill.name} gets {first}",
            fix=Fix(text=f"Set {key} to the same value on both pools."),
            level=Level.WARNING if is_vllm and is_size else None,
        )


def _router(
    deployment: ServingDeployment, resolved: Mapping[str, Resolved]
) -> Iterator[RuleResult]:
    setting = deployment.router_setting(ROUTER_FLAG, ROUTER_VARIABLE)
    if setting is None or deployment.router_mode != "kv":
        return
    for worker in deployment.one_worker_per_component:
        block_size = resolved[worker.name].block_size if worker.name in resolved else None
        # A size that is set is compared by the router's own rule.
        if block_size and worker.runs_prefill and worker.count("block_size") is None:
            if str(setting.value) != str(block_size):
                yield RuleResult(
                    location=setting.location,
                    message=f"{setting.location.path[0]} is {setting.value}, but {worker.name} "
                    f"gets a KV block size of {block_size}",
                    fix=Fix(text=f"Remove {setting.location.path[0]}."),
                    level=Level.NOTE,
                )
            return


ENVIRONMENTS: Mapping[Engine, str] = {Engine.VLLM: "vllm-cpu", Engine.SGLANG: "sglang-check"}
# If nothing states the GPU: a configuration is refused only if it is refused on both.
ANY_GPU = ("h200", "b200")
ASKED = tuple(ENVIRONMENTS)
REFUSED, NOT_DECIDED = by_id("PS186"), by_id("PS187")
LONGEST_SENTENCE, LONGEST_WORD = 300, 60  # characters
# Settings whose values are modules or classes of Python, and values that look like them.
NAMES_CODE = re.compile(
    r"[\w.-]*(?:module[_-]path|plugin|[_-]cls\b|custom[_-]weight[_-]loader|logits[_-]processors|"
    r"middleware|custom_class|inductor_passes|forward[_-]hooks|external[_-](?:model|mm))[\w.-]*",
    re.IGNORECASE,
)
WORDS = re.compile(r"[\s\"',:={}\[\]]+")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
# Errors of an engine about a setting that another version has.
UNKNOWN_SETTING = re.compile(
    r"unrecognized arguments|unexpected keyword|invalid choice|ambiguous option|"
    r"unsupported config option",
    re.IGNORECASE,
)
DRAFT_KEYS = ("speculative-config.model", "speculative-draft-model-path")


def installed_engines() -> EngineProcesses:
    """The processes of the engines whose environments are installed."""
    pythons = {engine: installed_python(name) for engine, name in ENVIRONMENTS.items()}
    return EngineProcesses({engine: python for engine, python in pythons.items() if python})


class Engines(Protocol):
    """`engines.dry_run.process.EngineProcesses`."""

    folder: Path

    def has(self, engine: Engine) -> bool: ...

    def version(self, engine: Engine) -> str: ...

    def ask(self, engine: Engine, configuration: Configuration) -> Outcome: ...


@dataclass(frozen=True, kw_only=True)
class EngineResult:
    rule: Rule
    result: RuleResult
    # Settings that the engine's sentence names as well. An error of a rule about one of them is
    # the same problem.
    related: tuple[Location, ...] = ()


def results_of_engines(deployment: ServingDeployment, engines: Engines) -> Iterator[EngineResult]:
    """What the engines say about each worker, and about the pools."""
    resolved: dict[str, Resolved] = {}
    for worker in deployment.one_worker_per_component:
        outcome = outcome_of(deployment, worker, engines)
        if isinstance(outcome, Refused):
            yield refusal(deployment, worker, outcome, engines)
        elif isinstance(outcome, Undecided):
            yield _undecided(worker, outcome.reason)
        elif isinstance(outcome, Accepted) and deployment.gpu is not None:
            resolved[worker.name] = outcome.resolved
    for result in compare_pools(deployment, resolved):
        yield EngineResult(rule=POOLS_DIFFER, result=result, related=(result.location,))


def outcome_of(deployment: ServingDeployment, worker: Worker, engines: Engines) -> Outcome | None:
    """The engine's outcome for a worker; None for an engine of penstock or Dynamo itself."""
    if worker.engine not in ASKED:
        is_trtllm = worker.engine is Engine.TRTLLM
        reason = "the Python code of TensorRT-LLM is only in its image"
        return Undecided(reason=reason) if is_trtllm else None
    try:
        return _asked(deployment, worker, engines)
    except MissingToolError as error:
        return Undecided(reason=str(error))


def _asked(deployment: ServingDeployment, worker: Worker, engines: Engines) -> Outcome:
    if not engines.has(worker.engine):
        name = ENVIRONMENTS[worker.engine]
        reason = f"the environment {name} is not installed: run `penstock tools env install {name}`"
        return Undecided(reason=reason)
    for word in worker.launch.arguments:
        if re.search(r"[$`]", word):
            return Undecided(reason=f"only the cluster knows the value of {word[:LONGEST_WORD]}")
    if code := _named_code(worker):
        return Undecided(reason=f"{code[:LONGEST_WORD]} names Python code, which is not run")
    if worker.component.nodes > 1 and worker.dp > 1:
        reason = "the operator adds the data-parallel flags of a worker on several nodes"
        return Undecided(reason=reason)
    models = _models(deployment, worker, engines.folder)
    if isinstance(models, str):
        return Undecided(reason=models)
    configurations = (
        Configuration(launch=worker.launch, hardware=hardware, models=models)
        for hardware in _hardware(deployment, worker)
    )
    outcomes = [engines.ask(worker.engine, configuration) for configuration in configurations]
    decided = [outcome for outcome in outcomes if not isinstance(outcome, Refused)]
    return decided[0] if decided else outcomes[0]


def _named_code(worker: Worker) -> str:
    """A setting or value of the worker by which an engine imports a module; empty without one."""
    config = worker.component.engine_config
    values = config.values if isinstance(config, KnownConfig) else {}
    texts = [*worker.launch.arguments, *(f"{k}={v}" for k, v in worker.launch.env.items())]
    for text in (*texts, json.dumps(values, default=str)):
        if name := NAMES_CODE.search(text):
            return name.group()
        for word in WORDS.split(text):
            if DOTTED.fullmatch(word):
                return word
    return ""


def _hardware(deployment: ServingDeployment, worker: Worker) -> list[Hardware]:
    gpus = [deployment.gpu] if deployment.gpu else [GPUS[name] for name in ANY_GPU]
    component = worker.component
    # A rule compares the number of GPUs with the parallelism. The operator adds the flags of a
    # worker on several nodes, so all its GPUs count as GPUs of one node.
    count = max(component.gpus, worker.world) if component.gpus or not deployment.is_graph else 0
    return [
        Hardware(name=gpu.name, sm=gpu.sm, memory_gib=gpu.memory_gib, count=count) for gpu in gpus
    ]


def _models(deployment: ServingDeployment, worker: Worker, below: Path) -> Mapping[str, str] | str:
    """The folders of the models that the worker's arguments name, or why one is not known."""
    named = worker.value("model")
    if named is None:
        return "no setting names the model"
    folders: dict[str, str] = {}
    if deployment.model_folder is not None and (
        deployment.is_graph or str(named) == deployment.model_name
    ):
        copied = copied_folder(deployment.model_folder.resolve(), below)
        if isinstance(copied, str):
            return copied
        folders[str(named)] = str(copied)
    drafts = [str(draft) for key in DRAFT_KEYS if (draft := worker.get(key)) is not None]
    for name in (str(named), *drafts):
        if name in folders:
            continue
        known = deployment.model_name if deployment.is_graph and name == str(named) else name
        folder = folder_for(str(known), below)
        if isinstance(folder, str):
            return folder
        folders[name] = str(folder)
    return folders


def refusal(
    deployment: ServingDeployment, worker: Worker, refused: Refused, engines: Engines
) -> EngineResult:
    """PS186; or PS187 if the sentence is about a setting that the image's version may have."""
    sentence, engine = refused.message, NAMES[worker.engine.value]
    level, note = _certainty(deployment, worker, engines.version(worker.engine))
    if level is not Level.ERROR and UNKNOWN_SETTING.search(sentence):
        return _undecided(worker, f'"{sentence[:LONGEST_SENTENCE]}"{note}')
    set_places, unset_places = places_of(sentence, worker)
    name = f"dynamo.{worker.engine}" if refused.is_of_dynamo else engine
    if refused.is_of_dynamo:
        note = note.replace(f"code of {engine}", f"code of Dynamo for {engine}")
    short = sentence if len(sentence) <= LONGEST_SENTENCE else f"{sentence[:LONGEST_SENTENCE]}…"
    return EngineResult(
        rule=REFUSED,
        result=RuleResult(
            location=next(iter(set_places), Location(worker.name, "args", ())),
            message=f'{name} refuses the configuration of {worker.name}: "{short}"{note}',
            fix=Fix(text=f"Change the settings as the error of {name} requires."),
            level=level,
        ),
        related=(*set_places, *unset_places),
    )


def _certainty(deployment: ServingDeployment, worker: Worker, version: str) -> tuple[Level, str]:
    """The level of a refusal, and a note if the image may have another version."""
    image = software(deployment.pods[worker.name])
    stated = image.engines.get(worker.engine, ())
    if Version(version) in stated and image.is_stated and image.later is None:
        return Level.ERROR, ""
    name = NAMES[worker.engine.value]
    has = f"the image has {stated[-1]}" if stated else "the image states no version"
    return Level.WARNING, f" (code of {name} {version}; {has})"


def _undecided(worker: Worker, reason: str) -> EngineResult:
    name = NAMES[worker.engine.value]
    return EngineResult(
        rule=NOT_DECIDED,
        result=RuleResult(
            location=Location(worker.name, "args", ()),
            message=f"cannot decide whether {name} accepts the configuration of {worker.name}: "
            f"{reason}",
            fix=Fix(text=NOT_DECIDED.remedy),
        ),
    )


def new_results(
    deployment: ServingDeployment,
    engines: Engines,
    file: CheckedFile,
    findings: Sequence[Finding],
    is_shown: Callable[[str], bool],
) -> Iterator[tuple[Rule, RuleResult]]:
    """What the engines' own code finds, without what the rules have ``found`` already: an error
    about a setting that the engine's sentence names, or any error of the worker if it names none.
    ``shown``: whether the findings of a rule are reported.
    """
    errors = [
        (finding.component, finding.line)
        for finding in findings
        if is_shown(finding.rule)
        and (finding.level is Level.ERROR or by_id(finding.rule).level is Level.ERROR)
        and finding.level is not Level.NOTE
    ]
    for answer in results_of_engines(deployment, engines):
        name = answer.result.location.component
        lines = {file.locate(place).line for place in answer.related} - {None}
        known = {component for component, line in errors if not lines or line in lines}
        if answer.rule is not REFUSED or not (known if lines else name in known):
            yield answer.rule, answer.result
