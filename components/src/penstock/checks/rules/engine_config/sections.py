"""The sections of vLLM's configuration, such as compilation-config, and flags that set a part."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checks.rules.engine_config.accepted_values import FOLDED
from penstock.checks.version_range import Versions
from penstock.engines.releases import DEPLOYED, RELEASES
from penstock.engines.sections import PASSES, SectionError
from penstock.engines.settings import PARTS
from penstock.engines.value_history import is_known, names
from penstock.manifests.deployment import Engine
from penstock.serving.worker import Worker

# Flags, and the section key that each is an alias of (vllm/engine/arg_utils.py 0.31.0).
ALIASED_KEYS: Mapping[str, str] = {
    "cudagraph-capture-sizes": "compilation-config.cudagraph_capture_sizes",
    "max-cudagraph-capture-size": "compilation-config.max_cudagraph_capture_size",
    "attention-backend": "attention-config.backend",
    "enable-flashinfer-autotune": "kernel-config.enable_flashinfer_autotune",
    **PARTS,
}
# Keys of a section that versions before those of engines/data/value_history.json had, and the first
# version without them (vllm/config of 0.10.1, 0.11.0, 0.12.0 and 0.14.1).
_GONE_SINCE: Mapping[str, Mapping[str, str]] = {
    "compilation-config": dict.fromkeys(
        ("use_inductor", "use_cudagraph", "full_cuda_graph", "max_capture_size"), "0.12"
    ),
    "compilation-config.pass_config": {
        **dict.fromkeys(PASSES, "0.13"),
        "fi_allreduce_fusion_max_token_num": "0.12",
    },
    "speculative-config": dict.fromkeys(
        ("disable_logprobs", "enable_chunked_prefill", "disable_log_stats"), "0.12"
    ),
}


def graph_key(worker: Worker, flag: str) -> str:
    """The flag if it is set, else the key of a section that it is an alias of."""
    return flag if worker.get(flag) is not None else ALIASED_KEYS[flag]


def is_in_section(worker: Worker, flag: str) -> bool:
    """Whether the key that ``flag`` is an alias of is set in its section."""
    key = ALIASED_KEYS[flag]
    if flag not in PARTS:
        return worker.get(key) is not None
    section, _, name = key.rpartition(".")  # these flags create the section if it is not set
    setting = worker.settings.values.get(section)
    values = setting.value if setting else None
    return isinstance(values, Mapping) and values.get(name) is not None


def is_of_other_versions(error: SectionError, key: str, setting: object) -> bool:
    """Whether another version of vLLM accepts the key or value."""
    kind, table, entry = _entry(error, key, setting)
    return bool(kind) and is_known(Engine.VLLM, kind, table, entry)


def refusing_versions(error: SectionError, key: str, setting: object) -> Versions | None:
    """The versions that refuse the key or value; None: every version does."""
    kind, table, entry = _entry(error, key, setting)
    if not kind:
        return None
    if table not in names(Engine.VLLM, kind):
        return Versions(vllm=f">={RELEASES[DEPLOYED].vllm}")
    first = _GONE_SINCE.get(table, {}).get(entry)
    return Versions(vllm=f">={first}") if first else None


def _entry(error: SectionError, key: str, setting: object) -> tuple[str, str, str]:
    """Kind, name and value in engines/data/value_history.json; empty for a number out of bounds."""
    if error.is_key:
        section, _, name = key.rpartition(".")
        return "sections", section, name.replace("-", "_")
    text = str(setting).upper() if key in FOLDED else str(setting)
    return ("choices", key, text) if error.is_choice else ("", "", "")
