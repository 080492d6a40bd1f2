"""The rule that compares a worker's parsers with what its model writes."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.responses.families import Family, Thinks, family_of
from penstock.checks.rules.responses.parser_formats import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    Format,
    format_of,
)
from penstock.checks.rules.responses.parsers import REASONING, TOOL_CALL
from penstock.checks.rules.responses.responses import (
    REASONING_FLAG,
    TOOL_FLAG,
    parser,
    served_name,
    writes_harmony,
)
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

FORMATS = {REASONING_FLAG: REASONING_FORMATS, TOOL_FLAG: TOOL_FORMATS}
FIELDS = {REASONING_FLAG: "reasoning_parser", TOOL_FLAG: "tool_call_parser"}
# The engine renders the prompt and reads the response.
OWN_TOKENIZER = ("--use-vllm-tokenizer", "--use-sglang-tokenizer")
# A template may ask the model for another format.
TEMPLATES = ("--custom-jinja-template", "--chat-template")
TEMPLATE_VARIABLE = "DYN_CUSTOM_JINJA_TEMPLATE"
# The frontend takes the parsers from the worker that registers for chat: the decode worker
# (discovery/watcher.rs@2a6da14c), and before 1.0 the prefill worker, which got the request first.
_CHAT_CARD = {Role.DECODE: ">=1.0", Role.PREFILL: ">=0.5.1,<1.0"}
# Pre-releases of 0.5.1 are older than 0.5.0, and some lack the flags.
WITH_FLAGS = ">=0.5.1"


def wrong_parsers(deployment: ServingDeployment) -> Iterator[RuleResult]:
    for worker in deployment.one_worker_per_component:
        kinds = worker.flag("--endpoint-types", "--dyn-endpoint-types")
        if kinds is not None and "chat" not in (kinds.text or ""):
            continue  # the worker serves only raw completions
        family = _family(deployment, worker)
        if family is None:
            continue
        for flag in FORMATS:
            if (level := _level(worker, family, flag)) is not None:
                yield _result(worker, family, flag, level)


def _family(deployment: ServingDeployment, worker: Worker) -> Family | None:
    """The family of the model; None if it is unknown, if Dynamo does not parse the responses, or if
    they may have another format."""
    if writes_harmony(deployment):
        return family_of("gpt-oss-120b")
    processor = deployment.router_setting("--dyn-chat-processor", "DYN_CHAT_PROCESSOR")
    if processor is not None and str(processor.value) != "dynamo":
        return None
    if worker.embeds or worker.flag(*OWN_TOKENIZER, *TEMPLATES) or worker.env(TEMPLATE_VARIABLE):
        return None
    name = served_name(worker) or ""
    found = family_of(str(worker.value("model"))) or (family_of(name) if "/" in name else None)
    # Test models have the name of gpt-oss and another vocabulary.
    return None if found is not None and _is_gpt_oss(found) else found


def _level(worker: Worker, family: Family, flag: str) -> Level | None:
    """The level of the finding; None if the parser fits or is not needed."""
    configured, best = parser(worker, flag), _best(family, flag)
    if not configured:
        if _is_gpt_oss(family):
            return Level.WARNING
        return _level_if_unset(worker, family, flag) if best and _shows_all(worker) else None
    reads = format_of(configured, FORMATS[flag])
    written = format_of(best, FORMATS[flag])
    if _is_gpt_oss(family):
        return None if configured == best else Level.ERROR
    if reads is None or written is None or reads is written or configured in family.also:
        return None
    return Level.WARNING


def _level_if_unset(worker: Worker, family: Family, flag: str) -> Level | None:
    if flag == TOOL_FLAG:
        return Level.NOTE if parser(worker, REASONING_FLAG) else None
    given = worker.flag("--dyn-default-thinking-mode")
    mode = given.text if given is not None else worker.env("DYN_DEFAULT_THINKING_MODE")
    if family.thinks is not Thinks.BY_DEFAULT or mode == "disabled":
        return None
    return Level.NOTE if family.is_published_without else Level.WARNING


def _is_gpt_oss(family: Family) -> bool:
    return family.reasoning == "gpt_oss"


def _best(family: Family, flag: str) -> str:
    return family.reasoning if flag == REASONING_FLAG else family.tools


def _shows_all(worker: Worker) -> bool:
    """False if a flag or variable may come from outside of the file."""
    arguments = worker.launch.arguments
    hidden = (
        argument.startswith("$") and not before.startswith("-")
        for before, argument in zip(("", *arguments), arguments, strict=False)
    )
    is_open = worker.launch.has_unread_variables or any(hidden)
    return worker.settings.is_complete and not is_open


def _result(worker: Worker, family: Family, flag: str, level: Level) -> RuleResult:
    best, configured = _best(family, flag), parser(worker, flag)
    written: Format | None = format_of(best, FORMATS[flag])
    text = written.text if written is not None else "a format of its own"
    names = [(flag, best)]
    is_only_one = flag == REASONING_FLAG and not configured and not _is_gpt_oss(family)
    if is_only_one and family.tools and not parser(worker, TOOL_FLAG):
        names.append((TOOL_FLAG, family.tools))
    return RuleResult(
        location=worker.location("args", flag),
        message=f"{flag} is {configured or 'unset'}, but {family.name} writes {text}",
        fix=Fix(
            text=f"Set {' and '.join(map(' '.join, names))}.",
            args=tuple(word for pair in names for word in pair),
            graph={f"model.{FIELDS[of]}": name for of, name in names},
        ),
        level=level,
        versions=_range_of(worker, flag, best),
    )


def _range_of(worker: Worker, flag: str, best: str) -> Versions:
    """The versions in which the worker has the flags and the parser, and its parsers count."""
    known = REASONING if flag == REASONING_FLAG else TOOL_CALL
    flags = ">=1.0" if worker.engine is Engine.MOCKER else WITH_FLAGS
    card = _CHAT_CARD.get(worker.role, flags)
    return Versions(dynamo=f"{card},>={known[best]}")
