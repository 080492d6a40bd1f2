"""One engine process of a deployment: its settings, parallelism and environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engines.flags import GivenFlag
from penstock.engines.settings import Location, Settings
from penstock.manifests.deployment import Component, Engine, Launch, Role
from penstock.manifests.pods import Pod
from penstock.text.values import positive_int

# All-to-all backends that make expert parallelism the tensor parallelism
# (`_A2A_EP_SPANNING_BACKENDS` of sglang/srt/arg_groups/overrides.py 0.5.21).
EP_SPANNING = (
    *("deepep", "deepep_v2", "megamoe", "flashinfer_megamoe", "flashinfer"),
    *("mooncake", "nixl", "mori", "pplx", "ascend_fuseep"),
)
# Further keys of the parallelism, by which a group of GPUs shares experts or a sequence.
GROUPS = (
    *("moe_expert_parallel_size", "moe_tensor_parallel_size", "context_parallel_size"),
    *("ep-size", "prefill-context-parallel-size"),
)
# The engines' defaults.
DEFAULTS: Mapping[tuple[str, Engine], Any] = {
    ("block_size", Engine.TRTLLM): 32,
    ("max_sequences", Engine.TRTLLM): 2048,  # Dynamo's preset
    ("max_batch_tokens", Engine.TRTLLM): 8192,
    ("memory_fraction", Engine.TRTLLM): 0.9,
    ("memory_fraction", Engine.VLLM): 0.92,
}


def first_by_component(workers: Iterable[Worker]) -> dict[str, Worker]:
    """The first worker of each component, by the component's name."""
    first: dict[str, Worker] = {}
    for worker in workers:
        first.setdefault(worker.name, worker)
    return first


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One engine process of a pool."""

    component: Component
    launch: Launch
    # The component's pod in the manifest.
    pod: Pod
    settings: Settings

    @property
    def name(self) -> str:
        """The name of its component."""
        return self.component.name

    @property
    def role(self) -> Role:
        """prefill, decode or worker."""
        return self.component.role

    @property
    def engine(self) -> Engine:
        """trtllm, vllm, sglang, llamacpp or mocker."""
        return self.settings.engine

    @property
    def is_trtllm(self) -> bool:
        """Whether it runs TensorRT-LLM."""
        return self.engine is Engine.TRTLLM

    @property
    def runs_prefill(self) -> bool:
        """Whether it computes prompts: all but decode workers."""
        return self.role is not Role.DECODE

    @property
    def embeds(self) -> bool:
        """Whether it computes embeddings, which take milliseconds and cache no prefix."""
        flag = self.flag("--embedding-worker", "--is-embedding")
        return flag is not None or self.get("runner") == "pooling"

    def get(self, key: str) -> Any:
        """The value of a key in the engine's format, None if unset."""
        setting = self.settings.get(key)
        return setting.value if setting else None

    def value(self, name: str) -> Any:
        """The value of one of `COMMON_SETTINGS`; if unset, the engine's default if it is known."""
        setting = self.settings.common(name)
        if setting is not None and setting.value is not None:
            return setting.value
        return DEFAULTS.get((name, self.engine))

    def count(self, name: str) -> int | None:
        """`value` as an integer above 0, else None."""
        return positive_int(self.value(name))

    def config_location(self, key: str) -> Location:
        """Where ``key`` is set; if unset, its place in the engine's file."""
        setting = self.settings.get(key)
        return setting.location if setting else Location(self.name, "config", tuple(key.split(".")))

    def location(self, what: str, *path: str | int) -> Location:
        """A place of the component: `config`, `args`, `env` or `field`, and the path in it."""
        return Location(self.name, what, path)

    @property
    def tp(self) -> int:
        """Tensor parallelism."""
        return self.count("tensor_parallel") or 1

    @property
    def pp(self) -> int:
        """Pipeline parallelism."""
        return self.count("pipeline_parallel") or 1

    @property
    def is_laid_out(self) -> bool:
        """False if its parallelism is not known: computed by its script (`--tp $(nproc)`), or
        invalid."""
        names = ("tensor_parallel", "pipeline_parallel", "data_parallel")
        settings = (self.settings.common(name) for name in names)
        values = [setting.value for setting in settings if setting is not None]
        groups = [self.get(key) for key in GROUPS]  # engines read -1 as unset
        return all(value is None or positive_int(value) for value in values) and all(
            value is None or positive_int(value) or value in (0, -1) for value in groups
        )

    @property
    def cp(self) -> int:
        """Context parallelism of prefill."""
        if self.is_trtllm:
            return positive_int(self.get("context_parallel_size")) or 1
        return positive_int(self.get("prefill-context-parallel-size")) or 1

    @property
    def dcp(self) -> int:
        """GPUs of the tensor parallelism that share a sequence's KV by position."""
        return 1 if self.is_trtllm else positive_int(self.get("decode-context-parallel-size")) or 1

    @property
    def dp(self) -> int:
        """Data-parallel ranks, each on its own GPUs."""
        is_sglang = self.engine is Engine.SGLANG
        if is_sglang and self._attention_dp_size == 1 and self.get("enable-dp-attention"):
            return 1
        return self.count("data_parallel") or 1

    @property
    def ep(self) -> int:
        """Size of the expert-parallel group."""
        if self.is_trtllm:
            ep = positive_int(self.get("moe_expert_parallel_size"))
            return ep or self.tp // max(
                1, positive_int(self.get("moe_tensor_parallel_size")) or self.tp
            )
        if self.engine is Engine.VLLM:
            return self.tp * self.dp if self.get("enable-expert-parallel") is True else 1
        spans = self.get("moe-a2a-backend") in EP_SPANNING
        return self.tp if spans else positive_int(self.get("ep-size")) or 1

    @property
    def has_attention_dp(self) -> bool:
        """Whether the ranks of the attention have sequences of their own."""
        if self.engine is Engine.SGLANG and self._attention_dp_size > 1:
            return True
        key = {Engine.TRTLLM: "enable_attention_dp", Engine.SGLANG: "enable-dp-attention"}
        return self.engine in key and self.get(key[self.engine]) is True

    @property
    def _attention_dp_size(self) -> int:
        """SGLang's flag since 0.5.22, with which dp-size counts replicas."""
        return positive_int(self.get("attn-dp-size")) or 1

    @property
    def attention_ranks(self) -> int:
        """Groups of GPUs under attention DP, each with its own sequences; 1 without it."""
        if not self.has_attention_dp:
            return 1
        ranks = self._attention_dp_size
        if ranks == 1:
            ranks = self.tp if self.is_trtllm else self.count("data_parallel") or 1
        return ranks if self.tp % ranks == 0 else 1

    @property
    def world(self) -> int:
        """GPUs that the parallelism needs."""
        return self.tp * self.pp * self.cp * self.dp

    def env(self, name: str) -> str | None:
        """The value of an environment variable; None if it is not set."""
        return self.launch.env.get(name)

    def flag(self, *names: str) -> GivenFlag | None:
        """The last flag given of ``names``, in any of its spellings; None if there is none."""
        flags = [g for g in self.settings.flags if g.flag and set(names) & set(g.flag.spellings)]
        return flags[-1] if flags else None
