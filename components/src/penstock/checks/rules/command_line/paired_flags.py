"""Rules about flags of Dynamo's workers that require or exclude each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

CONFIG, KEY = "--disagg-config", "--disagg-config-key"
SHADOW, TYPES = "--gms-shadow-mode", ("--endpoint-types", "--dyn-endpoint-types")
EMBEDS, ENCODER = "--embedding-worker", "--custom-encoder-class"
MULTIMODAL, DEDICATED = "--enable-multimodal", "--dedicated-mm-encoder"
DECODING, RERANK = "--frontend-decoding", "--rerank-worker"
ENDPOINTS = ("chat", "completions", "none")
# (flag, message, fix)
Problem = tuple[str, str, str]


def paired_flags(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        for flag, message, fix in (*_pairs(worker), *_endpoints(worker)):
            yield RuleResult(
                location=Location(worker.name, "args", (flag,)),
                message=message,
                fix=Fix(text=fix),
            )


def _pairs(worker: Worker) -> Iterator[Problem]:
    if worker.engine is Engine.SGLANG:
        given = [flag for flag in (CONFIG, KEY) if worker.flag(flag) is not None]
        if len(given) == 1:
            (other,) = {CONFIG, KEY} - set(given)
            yield given[0], f"{given[0]} requires {other}", f"Add {other}."
        yield from _multimodal(worker)
    if worker.engine is not Engine.VLLM:
        return
    if worker.flag(SHADOW) is not None and worker.get("load-format") != "gms":
        yield SHADOW, f"{SHADOW} requires --load-format gms", "Add --load-format gms."
    role = worker.role in (Role.PREFILL, Role.DECODE)
    for flag in (EMBEDS, ENCODER):
        if worker.flag(flag) is not None and role:
            message = f"{flag} does not work with --disaggregation-mode {worker.role}"
            yield flag, message, f"Remove {flag}."


def _multimodal(worker: Worker) -> Iterator[Problem]:
    """What `validate` and `_normalize_multimodal_disaggregation_args` refuse."""
    mode = worker.flag("--disaggregation-mode")
    if _is_on(worker, RERANK) and mode is not None and mode.text in ("prefill", "decode"):
        message = f"{RERANK} does not work with --disaggregation-mode {mode.text}"
        yield RERANK, message, f"Remove {RERANK}."
    if not _is_on(worker, DEDICATED) or _is_on(worker, "--multimodal-worker"):
        return
    if not _is_on(worker, MULTIMODAL) and not worker.env("DYN_SGL_ENABLE_MULTIMODAL"):
        message = f"{DEDICATED} requires {MULTIMODAL}"
        yield DEDICATED, message, f"Add {MULTIMODAL}."
    elif mode is None or mode.text == "encode":
        message = f"{DEDICATED} requires --disaggregation-mode pd, prefill or decode"
        fix = "Set the mode of the worker." if mode is None else f"Remove {DEDICATED}."
        yield DEDICATED, message, fix
    elif _is_on(worker, DECODING):
        message = f"{DECODING} does not work with {DEDICATED}"
        yield DECODING, message, f"Move {DECODING} to the encode worker."


def _is_on(worker: Worker, flag: str) -> bool:
    given = worker.flag(flag)
    return given is not None and given.value is not False


def _endpoints(worker: Worker) -> Iterator[Problem]:
    given = worker.flag(*TYPES)
    if given is None or not given.text or "$" in given.text:
        return
    flag = given.spelling
    types = [part.strip().lower() for part in given.text.split(",") if part.strip()]
    unknown = [one for one in types if one not in ENDPOINTS]
    if unknown:
        message = f"{flag} has the unknown type {unknown[0]}"
        yield flag, message, f"Use {', '.join(ENDPOINTS)}."
    elif "none" in types and len(types) > 1:
        yield flag, f"{flag} combines the type none with others", "Remove the type none."
