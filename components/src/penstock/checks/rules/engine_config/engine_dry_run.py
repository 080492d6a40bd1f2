"""What `check --engine-dry-run` reports; `checks/engine_dry_run.py` finds it."""

from __future__ import annotations

from penstock.checks.finding import Level
from penstock.checks.rule import Rule, reported_by_run
from penstock.checks.version_range import EVERY_IMAGE
from penstock.manifests.deployment import Engine

ASKED = (Engine.VLLM, Engine.SGLANG)

REFUSED = Rule(
    id="PS186",
    title="the engine's own code refuses the configuration",
    level=Level.ERROR,
    cause="`penstock check --engine-dry-run` built the configuration of the worker for its model "
    "and GPUs with the engine's own code, which raised an error. The message quotes this error.",
    effect="The worker exits at startup with this error.",
    remedy="Change the settings that the engine names.",
    source="The code of vLLM and SGLang in the environments vllm-cpu and sglang-check. Kernels and "
    "weights are not loaded, so an accepted configuration may still fail.",
    versions=EVERY_IMAGE,
    check=reported_by_run,
    other_levels=(Level.WARNING,),
    engines=ASKED,
    exceptions="If the image has another version of the engine than the environment, the finding "
    "is a warning, and its message names both versions. If another rule reports an error at the "
    "same place, this rule does not report it again.",
)
NOT_DECIDED = Rule(
    id="PS187",
    title="the engine's own code cannot decide",
    level=Level.NOTE,
    cause="`penstock check --engine-dry-run` cannot build the configuration of a worker on this "
    "machine: the model's config.json, a file of the image or a part of the engine is missing.",
    effect="`check` applies the other rules, but cannot report what only the engine would refuse.",
    remedy="Pass `--model DIR` with the model's config.json, install the environment that the "
    "message names, or ignore the note.",
    source="penstock",
    versions=EVERY_IMAGE,
    check=reported_by_run,
)
POOLS_DIFFER = Rule(
    id="PS188",
    title="the pools choose different KV cache layouts",
    level=Level.ERROR,
    cause="`penstock check --engine-dry-run` resolved the configuration of both pools, and the "
    "engine chooses another attention backend, KV cache type, block size or connector for the "
    "prefill workers than for the decode workers. Often no setting in the file shows it.",
    effect="The handshake of the KV transfer fails, or the router uses a wrong KV block size.",
    remedy="Set the value that the message names on both pools.",
    source="`compute_nixl_compatibility_hash` of nixl/metadata.py and `block_size_ratio` of "
    "kv_connector/utils.py, vLLM 0.31.0; disaggregation/common/conn.py, SGLang 0.5.21",
    versions=EVERY_IMAGE,
    check=reported_by_run,
    other_levels=(Level.WARNING, Level.NOTE),
    engines=ASKED,
)
