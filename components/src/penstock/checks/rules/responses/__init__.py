"""Facts of a worker's responses: its output parsers, whether they fit its model, and its name.

The tables are in families.yaml: the parsers of each model family, and what they read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from packaging.version import Version

from penstock.checks.finding import Level
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.models.known import CACHED, QUANTIZED
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software
from penstock.serving.worker import Worker
from penstock.strict_yaml.loader import SafeLoader

REASONING_FLAG, TOOL_FLAG = "--dyn-reasoning-parser", "--dyn-tool-call-parser"
# Flag → its key in the table.
KINDS = {REASONING_FLAG: "reasoning", TOOL_FLAG: "tools"}


class Thinks(StrEnum):
    """Whether a model reasons if the request does not say."""

    BY_DEFAULT = "by default"
    ON_REQUEST = "on request"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True)
class Family:
    """The head of families.yaml explains the fields."""

    name: str
    ids: str
    reasoning: str = ""
    tools: str = ""
    also: tuple[str, ...] = ()
    thinks: Thinks
    is_published_without: bool = False
    source: str

    @property
    def is_gpt_oss(self) -> bool:
        return self.reasoning == "gpt_oss"

    def parser(self, flag: str) -> str:
        """The best parser for one of Dynamo's flags; empty if no source names one."""
        return self.reasoning if flag == REASONING_FLAG else self.tools


@dataclass(frozen=True, kw_only=True)
class Parsers:
    """The parsers of one of Dynamo's flags."""

    # Name → the first release that has it.
    since: Mapping[str, str]
    # What a model writes, after "writes" → the names of the parsers that read it.
    formats: Mapping[str, tuple[str, ...]]

    def format_of(self, name: str) -> str | None:
        """What a parser reads; None if it is not known."""
        return next((text for text, names in self.formats.items() if name in names), None)


@cache
def _tables() -> Mapping[str, Any]:
    text = files(__package__).joinpath("families.yaml").read_text("utf-8")
    return dict(yaml.load(text, SafeLoader))  # noqa: S506  a subclass of PyYAML's safe loader


@cache
def families() -> tuple[Family, ...]:
    """All families; ValueError if one has another `thinks`."""
    return tuple(
        Family(
            **{
                **row,
                "also": tuple(row.get("also", ())),
                "thinks": Thinks(row.get("thinks", Thinks.BY_DEFAULT)),
            }
        )
        for row in _tables()["families"]
    )


@cache
def parsers(flag: str) -> Parsers:
    """The parsers of one of Dynamo's flags."""
    table = _tables()[KINDS[flag]]
    return Parsers(
        since={name: since for since, names in table["since"].items() for name in names.split()},
        formats={text: tuple(names.split()) for text, names in table["formats"].items()},
    )


def family_of(model: str) -> Family | None:
    """The family of an id, the path of a cache, or a folder with the model's name."""
    cached = CACHED.search(model)
    last = (cached[2] if cached else model.rstrip("/").rpartition("/")[2]).lower()
    while (shorter := QUANTIZED.sub("", last)) != last:
        last = shorter
    return next((family for family in families() if re.fullmatch(family.ids, last)), None)


HARMONY_VOCABULARY = 201088
HARMONY = {REASONING_FLAG: "gpt_oss", TOOL_FLAG: "harmony"}
# The engine renders the prompt and reads the response.
_OWN_TOKENIZER = ("--use-vllm-tokenizer", "--use-sglang-tokenizer")
# A template may ask the model for another format.
_TEMPLATES = ("--custom-jinja-template", "--chat-template")
_TEMPLATE_VARIABLE = "DYN_CUSTOM_JINJA_TEMPLATE"
# The frontend takes the parsers from the worker that registers for chat: the decode worker
# (discovery/watcher.rs@2a6da14c), and before 1.0 the prefill worker, which got the request first.
_CHAT_CARD = {Role.DECODE: ">=1.0", Role.PREFILL: ">=0.5.1,<1.0"}
# Pre-releases of 0.5.1 are older than 0.5.0, and some lack the flags.
_WITH_FLAGS = ">=0.5.1"


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A parser flag that does not fit a worker's model; ``level``: that of the finding."""

    worker: Worker
    family: Family
    flag: str
    level: Level

    @property
    def lacks_both(self) -> bool:
        """Whether the worker needs a tool-call parser, too."""
        is_unset = not any(parser(self.worker, flag) for flag in KINDS)
        needs_tools = bool(self.family.tools) and not self.family.is_gpt_oss
        return self.flag == REASONING_FLAG and is_unset and needs_tools

    @property
    def versions(self) -> Versions:
        """Those in which the worker has the flags and the parser, and its parsers count."""
        flags = ">=1.0" if self.worker.engine is Engine.MOCKER else _WITH_FLAGS
        card = _CHAT_CARD.get(self.worker.role, flags)
        first = parsers(self.flag).since[self.family.parser(self.flag)]
        return Versions(dynamo=f"{card},>={first}")


def parser(worker: Worker, flag: str) -> str:
    """The parser that one of Dynamo's flags, or its variable, sets; empty if unset."""
    variable = "DYN_" + flag.removeprefix("--dyn-").replace("-", "_").upper()
    written = worker.flag(flag)
    return (written.text if written is not None else worker.env(variable)) or ""


def engine_parser(worker: Worker, flag: str) -> str:
    """SGLang's own flag for what one of Dynamo's flags sets, if the worker has it; else empty.
    dynamo.sglang exits if both tool-call parsers are set (args.py of 1.0.2 to 1.6.1)."""
    own = flag.replace("--dyn-", "--")
    is_set = worker.engine is Engine.SGLANG and worker.get(own.removeprefix("--")) is not None
    return own if is_set else ""


def replaced_parsers(misfit: Misfit) -> str:
    """What to do if SGLang's own parsers are set: they must go. Empty if none is set."""
    flags = list(KINDS) if misfit.lacks_both else [misfit.flag]
    if not any(engine_parser(misfit.worker, flag) for flag in flags):
        return ""
    steps = []
    for flag in flags:
        own, dynamo = engine_parser(misfit.worker, flag), f"{flag} {misfit.family.parser(flag)}"
        steps.append(f"Replace {own} with {dynamo}." if own else f"Set {dynamo}.")
    return " ".join(steps)


def harmony_parsers(worker: Worker) -> list[str]:
    """The names of the worker's parsers that read harmony."""
    return [name for flag, name in HARMONY.items() if parser(worker, flag) == name]


def writes_harmony(deployment: ServingDeployment) -> bool:
    """Whether it is gpt-oss with its own vocabulary; test models have other vocabularies."""
    model = deployment.model
    return model is not None and model.is_gpt_oss and model.vocabulary == HARMONY_VOCABULARY


def may_have(worker: Worker, release: str) -> bool:
    """Whether the image is a build before the release, and may already have what it adds."""
    later = software(worker.pod).later
    return later is not None and Version(later.dynamo) >= Version(release)


def served_name(worker: Worker) -> str | None:
    """The model's name in requests; None if it is not known."""
    written = worker.flag("--served-model-name", "--model-name")
    name = written.text if written is not None else _first(worker.get("served-model-name"))
    model = worker.settings.common("model")
    return name or (str(model.value) if model else None)


def _first(value: Any) -> str | None:
    """vLLM accepts several names; responses contain the first."""
    name = value[0] if isinstance(value, list) and value else value
    return name if isinstance(name, str) else None


def misfits(deployment: ServingDeployment) -> Iterator[Misfit]:
    """The workers' parsers that do not read what the model writes."""
    for worker in deployment.one_worker_per_component:
        kinds = worker.flag("--endpoint-types", "--dyn-endpoint-types")
        if kinds is not None and "chat" not in (kinds.text or ""):
            continue  # the worker serves only raw completions
        family = _family(deployment, worker)
        for flag in KINDS if family is not None else ():
            if family is not None and (level := _level(worker, family, flag)) is not None:
                yield Misfit(worker=worker, family=family, flag=flag, level=level)


def _family(deployment: ServingDeployment, worker: Worker) -> Family | None:
    """The family of the model; None if it is unknown, if Dynamo does not parse the responses, or if
    they may have another format."""
    if writes_harmony(deployment):
        return family_of("gpt-oss-120b")
    processor = deployment.router_setting("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
    if processor is not None and str(processor.value) != "dynamo":
        return None
    if worker.embeds or worker.flag(*_OWN_TOKENIZER, *_TEMPLATES) or worker.env(_TEMPLATE_VARIABLE):
        return None
    name = served_name(worker) or ""
    family = family_of(str(worker.value("model"))) or (family_of(name) if "/" in name else None)
    # Test models have the name of gpt-oss and another vocabulary.
    return None if family is not None and family.is_gpt_oss else family


def _level(worker: Worker, family: Family, flag: str) -> Level | None:
    """The level of the finding; None if the parser fits or is not needed."""
    configured, best = parser(worker, flag), family.parser(flag)
    if family.is_gpt_oss:
        return None if configured == best else Level.ERROR if configured else Level.WARNING
    if not configured:
        return _level_if_unset(worker, family, flag) if best and _shows_all(worker) else None
    reads, written = parsers(flag).format_of(configured), parsers(flag).format_of(best)
    fits = reads is None or written is None or reads == written or configured in family.also
    return None if fits else Level.WARNING


def _level_if_unset(worker: Worker, family: Family, flag: str) -> Level | None:
    if flag == TOOL_FLAG:
        return Level.NOTE if parser(worker, REASONING_FLAG) else None
    written = worker.flag("--dyn-default-thinking-mode")
    mode = written.text if written is not None else worker.env("DYN_DEFAULT_THINKING_MODE")
    if family.thinks is not Thinks.BY_DEFAULT or mode == "disabled":
        return None
    return Level.NOTE if family.is_published_without else Level.WARNING


def _shows_all(worker: Worker) -> bool:
    """False if a flag or variable may come from outside of the file."""
    arguments = worker.launch.arguments
    hidden = (
        argument.startswith("$") and not before.startswith("-")
        for before, argument in zip(("", *arguments), arguments, strict=False)
    )
    is_open = worker.launch.has_unread_variables or any(hidden)
    return worker.settings.is_complete and not is_open
