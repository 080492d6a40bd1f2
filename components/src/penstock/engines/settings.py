"""The settings of one worker under its engine's names, each value with the place that sets it.

They are read from the launch and its files; no parser is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.engines.flags import GivenFlag, arguments_of, flag_table, given_flags
from penstock.engines.trtllm_arguments import converted
from penstock.manifests.deployment import Component, Engine, KnownConfig, Launch
from penstock.strict_yaml.loader import load_json

Path = tuple[str | int, ...]

# Settings that several engines have, with the name of each engine for it: a dotted key of its file,
# or its flag without dashes.
_ENGINES = (Engine.TRTLLM, Engine.VLLM, Engine.SGLANG, Engine.LLAMACPP, Engine.MOCKER)
_NAMES = {
    "model": "model model model-path model model-path",
    "tensor_parallel": "tensor_parallel_size tensor-parallel-size tp-size - -",
    "pipeline_parallel": "pipeline_parallel_size pipeline-parallel-size pp-size - -",
    "data_parallel": "- data-parallel-size dp-size - -",
    "context_length": "max_seq_len max-model-len context-length n_ctx_seq engine.max_model_len",
    "block_size": "kv_cache_config.tokens_per_block block-size"
    " page-size block_size engine.block_size",
    "kv_dtype": "kv_cache_config.dtype kv-cache-dtype kv-cache-dtype - engine.kv_cache_dtype",
    "dtype": "dtype dtype dtype - -",
    "max_sequences": "max_batch_size max-num-seqs"
    " max-running-requests n_parallel engine.max_num_seqs",
    "max_batch_tokens": "max_num_tokens max-num-batched-tokens"
    " chunked-prefill-size n_batch engine.max_num_batched_tokens",
    "memory_fraction": "kv_cache_config.free_gpu_memory_fraction gpu-memory-utilization"
    " mem-fraction-static - -",
    "speculation": "speculative_config speculative-config speculative-algorithm - -",
}
COMMON_SETTINGS: Mapping[str, Mapping[Engine, str]] = {
    setting: {e: name for e, name in zip(_ENGINES, names.split(), strict=True) if name != "-"}
    for setting, names in _NAMES.items()
}
# The command line's word for keys of TensorRT-LLM's file (dynamo/trtllm/args.py 1.6.1).
TRTLLM_FLAGS = {
    "model": "model",
    "tensor-parallel-size": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "expert-parallel-size": "moe_expert_parallel_size",
    "enable-attention-dp": "enable_attention_dp",
    "max-batch-size": "max_batch_size",
    "max-num-tokens": "max_num_tokens",
    "max-seq-len": "max_seq_len",
    "max-beam-width": "max_beam_width",
    "free-gpu-memory-fraction": "kv_cache_config.free_gpu_memory_fraction",
    "load-format": "load_format",
}
# The mocker's flags for keys of its file, which replaces the command line.
MOCKER_FLAGS = {
    "block-size": "engine.block_size",
    "max-model-len": "engine.max_model_len",
    "max-num-seqs": "engine.max_num_seqs",
    "max-num-batched-tokens": "engine.max_num_batched_tokens",
    "kv-cache-dtype": "engine.kv_cache_dtype",
}
# vLLM's flags for parts of a section (vllm/engine/arg_utils.py 0.31.0).
PARTS = {
    "spec-method": "speculative-config.method",
    "spec-model": "speculative-config.model",
    "spec-tokens": "speculative-config.num_speculative_tokens",
}

OVERRIDE = "override-engine-args"
TRUE = ("true", "1", "yes", "on")
DOTTED = "--trtllm."
OVERRIDE_VARIABLE = "DYN_TRTLLM_OVERRIDE_ENGINE_ARGS"
# Objects when the override is applied, so that it replaces them as a whole (`deep_update` merges
# only mappings; TensorRT-LLM's update_llm_args_with_extra_dict creates them from the file).
REPLACED = (
    "kv_cache_config",
    "moe_config",
    "attention_dp_config",
    "nvfp4_gemm_config",
    "lora_config",
)


@dataclass(frozen=True)
class Location:
    """The place of a setting in a deployment."""

    # Empty for a place outside of the components.
    component: str
    # `config` (the engine's file), `args`, `env`, `field` (of the component, as in v1beta1),
    # `manifest` (the DGD), `document` (any object of the file) or `graph` (the graph YAML).
    what: str
    path: Path = ()

    def below(self, *steps: str | int) -> Location:
        return Location(self.component, self.what, (*self.path, *steps))


@dataclass(frozen=True)
class Setting:
    value: Any
    location: Location


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one engine process."""

    engine: Engine
    # By dotted key, each under all spellings of its flag.
    values: Mapping[str, Setting]
    # The flags as given on the command line.
    flags: tuple[GivenFlag, ...]
    component: str
    # False if a configuration file could not be read.
    is_complete: bool
    # vLLM's sections that flags replace as a whole; see `_Reader.replaced`.
    replaced: Mapping[str, Setting] = field(default_factory=dict)

    def get(self, key: str) -> Setting | None:
        """The setting at a dotted key of the engine; the key may lead into a mapping."""
        setting = self.values.get(key)
        if setting is not None:
            return setting
        head, *rest = key.split(".")
        above = self.values.get(head)
        if not rest:
            return self._assembled(key)
        if above is None:
            return None
        part: Any = above.value
        for step in rest:
            if not isinstance(part, Mapping) or step not in part:
                return None
            part = part[step]
        return Setting(
            part,
            above.location.below(*rest) if above.location.what == "config" else above.location,
        )

    def value(self, key: str) -> Any:
        """The value at a dotted key of the engine; None if it is not set."""
        setting = self.get(key)
        return setting.value if setting else None

    def _assembled(self, key: str) -> Setting | None:
        """A mapping that is set in parts: `--kv-transfer-config.kv_role kv_both`."""
        parts = {k[len(key) + 1 :]: s for k, s in self.values.items() if k.startswith(f"{key}.")}
        if not parts:
            return None
        assembled: dict[str, Any] = {}
        for name, setting in parts.items():
            _put(assembled, name.split("."), setting.value)
        return Setting(assembled, next(iter(parts.values())).location)

    def common(self, name: str) -> Setting | None:
        """One of `COMMON_SETTINGS`; None if the engine has no such setting or it is unset."""
        key = COMMON_SETTINGS[name].get(self.engine)
        return self.get(key) if key else None

    def location(self, name: str) -> Location:
        """Where one of `COMMON_SETTINGS` is set, or would be."""
        if (setting := self.common(name)) is not None:
            return setting.location
        key = COMMON_SETTINGS[name].get(self.engine, name)
        return Location(self.component, "config", tuple(key.split(".")))


def read_settings(component: Component, launch: Launch) -> Settings:
    """The settings of one launch of a component that runs an engine."""
    engine = component.engine
    if engine is None:
        raise ValueError(f"{component.name} runs no engine")
    flags = given_flags(launch.module or "", launch.arguments)
    config = component.engine_config
    known = config.values if isinstance(config, KnownConfig) else {}
    reader = _Reader(component.name, engine, flags, known, launch.env)
    return Settings(
        engine=engine,
        values=_merged(reader.values()),
        flags=flags,
        component=component.name,
        is_complete=isinstance(config, KnownConfig)
        or not (_names_a_file(component) or _has_unknown_file(flags)),
        replaced=reader.replaced,
    )


def _merged(values: Iterable[tuple[str, Setting]]) -> dict[str, Setting]:
    """The last value of a key wins. Sections of the override merge into those of the file, except
    `REPLACED` (dynamo/trtllm/utils/trtllm_utils.py 1.6.1, `deep_update`)."""
    merged: dict[str, Setting] = {}
    for key, setting in values:
        below, location, argument = merged.get(key), setting.location, setting.value
        if key in REPLACED:
            merged = {k: v for k, v in merged.items() if not k.startswith(f"{key}.")}
        elif below and isinstance(below.value, Mapping) and isinstance(argument, Mapping):
            location, argument = below.location, {**below.value, **argument}
        merged[key] = Setting(argument, location)
    return merged


def _names_a_file(component: Component) -> bool:
    return hasattr(component.engine_config, "path")


def _has_unknown_file(flags: Iterable[GivenFlag]) -> bool:
    """Whether a flag that the engine does not have, such as `--config-path`, names a file with
    settings. An image with such a launcher may read it."""
    return any(
        flag.flag is None and str(flag.text or "").endswith((".yaml", ".yml", ".json"))
        for flag in flags
    )


@dataclass(frozen=True)
class _Reader:
    component: str
    engine: Engine
    used_flags: tuple[GivenFlag, ...]
    file: Mapping[str, Any]
    env: Mapping[str, str]

    def values(self) -> Iterator[tuple[str, Setting]]:
        """(key, setting), lowest precedence first."""
        if self.engine is Engine.TRTLLM:
            for key, setting in self._of_trtllm():
                yield key, Setting(converted(key, setting.value), setting.location)
        elif self.engine in (Engine.MOCKER, Engine.LLAMACPP):
            yield from self._command_line()
            yield from self._file()
        elif self.engine is Engine.VLLM:
            yield from (item for item in self._flags if item[0] not in self.replaced)
        else:
            yield from self._flags

    def _of_trtllm(self) -> Iterator[tuple[str, Setting]]:
        yield from self._environment()
        yield from self._command_line()
        yield from self._file()
        yield from self._override()

    @cached_property
    def replaced(self) -> dict[str, Setting]:
        """vLLM's sections that `--section.key` replaces as a whole, at any position: the parts
        become one value, the last (vllm/utils/argparse_utils.py 0.31.0)."""
        if self.engine is not Engine.VLLM:
            return {}
        added = PARTS.values()  # they are added to the section
        parts = {key.partition(".")[0] for key, _ in self._flags if "." in key and key not in added}
        return {key: setting for key, setting in self._flags if key in parts}

    @cached_property
    def _flags(self) -> tuple[tuple[str, Setting], ...]:
        """Of vLLM and SGLang, whose file contains flags too; the command line takes precedence."""
        return (*self._file(), *self._command_line())

    def _file(self) -> Iterator[tuple[str, Setting]]:
        for key, argument in self.file.items():
            name = str(key)
            location = Location(self.component, "config", (name,))
            if self.engine in (Engine.VLLM, Engine.SGLANG):
                yield from self._file_flag(name, Setting(argument, location))
            elif (self.engine is Engine.MOCKER and isinstance(argument, Mapping)) or (
                name == "kv_cache_config" and isinstance(argument, Mapping)
            ):
                for inner, item in argument.items():
                    yield f"{name}.{inner}", Setting(item, location.below(str(inner)))
            else:
                yield name, Setting(argument, location)

    def _file_flag(self, key: str, setting: Setting) -> Iterator[tuple[str, Setting]]:
        table = flag_table(self.engine.module)
        words = arguments_of(self.engine, table, key, setting.value) if table else []
        used = next(table.read(words), None) if table and words else None
        if not words and key.startswith(("no-", "no_")):
            return  # `no-x: false` has no effect
        if used is None:
            yield from self._by_spelling(f"--{key.replace('_', '-')}", setting)
            return
        is_text = isinstance(setting.value, (str, bool))
        read = Setting(used.value, setting.location) if is_text else setting
        yield from self._by_spelling(used.spelling, read, used)

    def _command_line(self) -> Iterator[tuple[str, Setting]]:
        for used in self.used_flags:
            setting = Setting(used.value, Location(self.component, "args", (used.spelling,)))
            if self.engine is Engine.TRTLLM:
                names = [s.lstrip("-") for s in used.flag.spellings] if used.flag else []
                key = next((TRTLLM_FLAGS[n] for n in names if n in TRTLLM_FLAGS), None)
                yield key or used.spelling, setting
            elif self.engine in (Engine.MOCKER, Engine.LLAMACPP):
                name = used.spelling.lstrip("-")
                yield MOCKER_FLAGS.get(name, name), setting
            else:
                yield from self._by_spelling(used.spelling, setting, used)

    def _environment(self) -> Iterator[tuple[str, Setting]]:
        for flag, key in TRTLLM_FLAGS.items():
            name = f"DYN_TRTLLM_{flag.upper().replace('-', '_')}"
            if text := self.env.get(name):
                argument = text.lower() in TRUE if key == "enable_attention_dp" else _plain(text)
                yield key, Setting(argument, Location(self.component, "env", (name,)))

    def _by_spelling(
        self, spelling: str, setting: Setting, used: GivenFlag | None = None
    ) -> Iterator[tuple[str, Setting]]:
        """The setting under each spelling of its flag."""
        table = flag_table(self.engine.module)
        flag = used.flag if used else table.by_spelling.get(spelling) if table else None
        if used and used.inner:
            key = ".".join(used.inner)
            yield f"{used.flag.name if used.flag else spelling.lstrip('-')}.{key}", setting
            return
        if spelling.startswith("--no-") and flag is not None:
            setting = Setting(
                False if setting.value in (False, True) else setting.value, setting.location
            )
        names = flag.spellings if flag else (spelling,)
        for name in names:
            if not name.startswith("--no-"):
                yield name.lstrip("-"), setting
        if flag is not None and flag.name in PARTS and self.engine is Engine.VLLM:
            yield PARTS[flag.name], setting

    def _override(self) -> Iterator[tuple[str, Setting]]:
        """The override, which replaces the sections of `REPLACED` as a whole."""
        for location, values in overrides(self.component, self.used_flags, self.env):
            yield from ((key, Setting(value, location)) for key, value in values.items())


def overrides(
    component: str, flags: Iterable[GivenFlag], env: Mapping[str, str]
) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """What `--override-engine-args`, its variable and `--trtllm.a.b` set, each with its place."""
    sources = [
        (Location(component, "args", (used.spelling,)), used.text or "")
        for used in flags
        if used.flag is not None and used.flag.name == OVERRIDE
    ]
    if not sources and OVERRIDE_VARIABLE in env:
        sources = [(Location(component, "env", (OVERRIDE_VARIABLE,)), env[OVERRIDE_VARIABLE])]
    for location, text in sources[-1:]:
        values = _plain(text)
        if isinstance(values, Mapping):
            yield location, {str(key): value for key, value in values.items()}
    dotted: dict[str, Any] = {}
    last = ""
    for used in flags:
        if used.spelling.startswith(DOTTED) and used.text is not None:
            last = used.spelling
            _put(dotted, last.removeprefix(DOTTED).split("."), _inferred(used.text))
    if dotted:
        yield Location(component, "args", (last,)), dotted


def _put(tree: dict[str, Any], path: list[str], argument: Any) -> None:
    for step in path[:-1]:
        below = tree.setdefault(step, {})
        if not isinstance(below, dict):
            return  # the worker rejects it
        tree = below
    tree[path[-1]] = argument


def _inferred(text: str) -> Any:
    """A value as dynamo/trtllm/dynamic_flags.py reads it."""
    if text.lower() in ("none", "null"):
        return None
    return _plain(text)


def _plain(text: str) -> Any:
    try:
        return load_json(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text
