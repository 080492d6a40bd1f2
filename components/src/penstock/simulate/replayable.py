"""Turns a graph or manifest into a deployment that Dynamo's replay can run.

Everything comes from the rendered manifests, as in `check` and `up`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from penstock.checks.rules.kv_transfer.vllm_connectors import COMPOSED, TRANSFERS, connectors_of
from penstock.engines.engine import Effective, NoSimulation
from penstock.engines.parsers import (
    NotParsed,
    Parsed,
    ParseResult,
    Rejected,
    check_launches,
    run_child,
)
from penstock.engines.table import ENGINES
from penstock.environments.dynamo import parsers_python
from penstock.errors import LaunchError, PenstockError, Problem, SimulationError
from penstock.graph.slo import Slo
from penstock.manifests.deployment import Engine, Launch, Role
from penstock.manifests.source import Source
from penstock.memory import MemoryInputs, memory_budget
from penstock.serving.deployment import ServingDeployment
from penstock.serving.memory import fix_of_missing, memory_inputs, missing_facts
from penstock.serving.understand import Hints, understand
from penstock.serving.worker import Worker, first_by_component
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.calibration import uncalibrated
from penstock.simulate.frontend import DEFAULT, TIMES, Frontends
from penstock.simulate.model import InputLimit, PoolReplay, Replayable
from penstock.simulate.router import Router, router_of
from penstock.simulate.scaling import replicas_of, unscaled
from penstock.simulate.timing import timing_of
from penstock.text.quantities import quantity_of

# Arguments of the replay for each role: engine, number of workers, and the engine's type.
ARGUMENT = {
    Role.PREFILL: ("prefill_engine_args", "num_prefill_workers", "prefill"),
    Role.DECODE: ("decode_engine_args", "num_decode_workers", "decode"),
    Role.WORKER: ("extra_engine_args", "num_workers", "aggregated"),
}
# What a replay leaves out, by the keys that turn it on.
OFFLOAD = "KV offload"
NOT_SIMULATED = {
    "LoRA adapters": ("lora_config", "enable-lora"),
    OFFLOAD: (
        *("kv_cache_config.host_cache_size", "kv_connector_config"),  # TensorRT-LLM
        *("kv-offloading-size", "enable-hierarchical-cache"),  # vLLM, SGLang
    ),
    "the image encoder": ("mm_encoder_only",),
}
TCP_GBS = 1.0
FABRIC_NAMES = {None: "fabric not set", "none": "TCP"}
REPLAYED = ("kv", "round-robin", "random")
PLACE = "router.mode"


def replayable(source: Source, hints: Hints, acceptance: Acceptance | None = None) -> Replayable:
    """SimulationError if the replay has no such deployment, LaunchError if an engine would refuse
    its command line."""
    (result,) = replayable_deployments([source], hints, acceptance)
    if isinstance(result, PenstockError):
        raise result
    return result


def replayable_deployments(
    sources: Sequence[Source], hints: Hints, acceptance: Acceptance | None = None
) -> tuple[Replayable | PenstockError, ...]:
    """Does what `replayable` does for several sources, in order; one process parses all command
    lines.

    Errors are part of the result instead of being raised.
    """
    launchables = [_launchable(source, hints) for source in sources]
    launches = [
        pair
        for launchable in launchables
        if isinstance(launchable, _Launchable)
        for pair in launchable.launches
    ]
    run = partial(run_child, python=parsers_python()) if launches else run_child
    results = iter(check_launches(launches, run=run))
    return tuple(
        _built(launchable, list(islice(results, len(launchable.launches))), acceptance)
        if isinstance(launchable, _Launchable)
        else launchable
        for launchable in launchables
    )


@dataclass(frozen=True, kw_only=True)
class _Launchable:
    """A source that can be replayed if its engines accept their command lines."""

    source: Source
    serving: ServingDeployment
    workers: tuple[Worker, ...]  # one of each pool

    @property
    def launches(self) -> list[tuple[str, Launch]]:
        """(component, launch) of the workers, then of the frontends."""
        fronts = [(component.name, launch) for component, launch, _ in self.serving.frontends]
        return [*((worker.name, worker.launch) for worker in self.workers), *fronts]


def _launchable(source: Source, hints: Hints) -> _Launchable | PenstockError:
    try:
        serving = understand(source, hints)
        workers = _one_each(serving)
        _check(serving, workers)
    except PenstockError as error:
        return error
    return _Launchable(source=source, serving=serving, workers=workers)


def _built(
    launchable: _Launchable, results: Sequence[ParseResult], acceptance: Acceptance | None
) -> Replayable | PenstockError:
    if refused := [v.problem for v in results if isinstance(v, Rejected)]:
        return LaunchError(*refused)
    parsed = [result for result in results if not isinstance(result, Rejected)]
    try:
        return _replayable(launchable, parsed, acceptance)
    except PenstockError as error:
        return error


def _replayable(
    launchable: _Launchable, parsed: Sequence[Parsed | NotParsed], acceptance: Acceptance | None
) -> Replayable:
    source, serving, workers = launchable.source, launchable.serving, launchable.workers
    graph = source.loaded.graph if source.loaded else None
    builder = _PoolBuilder(serving, graph.hardware.fabric if graph else None, acceptance)
    pools = [builder.pool(w, p) for w, p in zip(workers, parsed, strict=False) if w.component.gpus]
    frontends = _frontends(serving, parsed[len(workers) :])
    files = serving.frontends[0][1].files if serving.frontends else {}
    roles = {worker.role for worker in workers}
    replicas = frontends.replicas if frontends else 1
    router = router_of(parsed[len(workers) :], replicas, files, roles)
    of_router = (*router.not_simulated, *_ranks(router, pools))
    assert serving.gpu is not None
    deployment = Replayable(
        name=source.deployment.name or "deployment",
        gpu=serving.gpu,
        pools=tuple(_merged(pools)),
        router=router,
        context=min(builder.contexts),
        input_limit=min(builder.input_limits, key=lambda limit: limit.tokens, default=None),
        not_simulated=tuple(dict.fromkeys((*builder.not_simulated, *of_router, *_unlike(pools)))),
        assumed=tuple(dict.fromkeys(builder.assumed)),
        unscaled=tuple(unscaled(serving)),
        frontends=frontends,
        frontend_time=frontends.time if frontends else TIMES[DEFAULT],
        slo=graph.slo if graph else Slo(),
        gpu_hour_price=graph.hardware.gpu_hour_price if graph else None,
    )
    return uncalibrated(deployment)


def _frontends(
    serving: ServingDeployment, parsed: Sequence[Parsed | NotParsed]
) -> Frontends | None:
    """None for a manifest without one. ``parsed``: the frontends' command lines."""
    if not serving.frontends:
        return None
    settings = next((launch.settings for launch in parsed if isinstance(launch, Parsed)), {})
    cpu = serving.pods[serving.frontends[0][0].name].cpu
    return Frontends(
        replicas=sum(component.replicas for component, _, _ in serving.frontends),
        tokenizer=settings.get("tokenizer_backend") or DEFAULT,
        cores=quantity_of(cpu) or None,
    )


def _one_each(serving: ServingDeployment) -> tuple[Worker, ...]:
    """The first worker process of each component that has replicas."""
    running = (worker for worker in serving.workers if worker.component.replicas)
    return tuple(first_by_component(running).values())


def not_replayable(message: str, fix: str, place: str = "") -> SimulationError:
    return SimulationError(message, place=place, fix=fix)


def _check(serving: ServingDeployment, workers: tuple[Worker, ...]) -> None:
    if not workers:
        raise not_replayable(
            "no pool has a worker to replay", "Set `replicas` of a worker pool to 1 or more."
        )
    frontends = [component for component, *_ in serving.frontends]
    if frontends and not any(component.replicas for component in frontends):
        message = f"{frontends[0].name} has 0 replicas, so the graph accepts no requests"
        raise not_replayable(message, "Set `frontend.replicas` to 1 or more.")
    for worker in workers:
        if worker.engine is Engine.MOCKER:
            message = f"{worker.name} runs the mocker, whose step times were not measured"
            raise not_replayable(message, "Use a graph with a real engine.", worker.name)
        if serving.gpu is None:
            fix = "Set `hardware.gpu`, or add --gpu."
            raise not_replayable("the GPU type is not set", fix, "hardware.gpu")
        if reason := missing_facts(serving, worker):
            raise not_replayable(reason, fix_of_missing(serving), worker.name)
    roles = {worker.role for worker in workers}
    if Role.WORKER in roles and len(roles) > 1:
        message = "aggregated workers together with prefill and decode pools cannot be replayed"
        raise not_replayable(
            message, "Split it into an aggregated and a disaggregated graph, and simulate both."
        )
    if roles in ({Role.PREFILL}, {Role.DECODE}):
        missing = "decode" if Role.PREFILL in roles else "prefill"
        raise not_replayable(
            f"no {missing} worker", f"Set `replicas` of a {missing} pool to 1 or more."
        )


def _merged(pools: list[PoolReplay]) -> Iterator[PoolReplay]:
    """One pool per role, as the replay has it, with the engine of the first."""
    for role in ARGUMENT:
        same_role = [pool for pool in pools if pool.role is role]
        if not same_role:
            continue
        yield replace(
            same_role[0],
            names=tuple(name for pool in same_role for name in pool.names),
            replicas=sum(pool.replicas for pool in same_role),
            all_gpus=sum(pool.all_gpus for pool in same_role),
        )


def _ranks(router: Router, pools: list[PoolReplay]) -> Iterator[str]:
    """A real engine with attention DP itself chooses the rank of a request."""
    if router.mode == "random" and any(pool.engine["dp_size"] > 1 for pool in pools):
        yield "router mode random with attention DP: selecting a random rank of a random worker"


def _unlike(pools: list[PoolReplay]) -> Iterator[str]:
    for role in ARGUMENT:
        same_role = [pool for pool in pools if pool.role is role]
        for other in same_role[1:]:
            if other.engine != same_role[0].engine:
                engines = (
                    f"the engine of {other.names[0]}: using that of {same_role[0].names[0]} instead"
                )
                yield f"{engines}, as the replay has one engine per role"


class _PoolBuilder:
    """Builds pools, and collects what is assumed and not simulated."""

    def __init__(
        self, serving: ServingDeployment, fabric: str | None, acceptance: Acceptance | None
    ) -> None:
        self._serving = serving
        self._fabric = fabric
        self._acceptance = acceptance
        self.contexts: list[int] = []
        self.input_limits: list[InputLimit] = []
        self._left_out: dict[str, list[str]] = {}  # what is not simulated → names of the workers
        self.assumed: list[str] = []

    @property
    def not_simulated(self) -> list[str]:
        return [f"{what} ({', '.join(names)})" for what, names in self._left_out.items()]

    def _leave_out(self, worker: Worker, *texts: str) -> None:
        for what in texts:
            self._left_out.setdefault(what, []).append(worker.name)

    def pool(self, worker: Worker, parsed: Parsed | NotParsed) -> PoolReplay:
        effective = ENGINES[worker.engine].effective(worker.component, worker.launch, parsed)
        if isinstance(effective, NoSimulation):
            raise not_replayable(
                effective.reason, "Simulate a graph without this pool.", worker.name
            )
        inputs = memory_inputs(self._serving, worker)
        assert inputs is not None, "checked before"
        memory = memory_budget(inputs)
        tokens = memory.kv_tokens
        if inputs.has_windows:
            tokens = int(memory.rank_sequences * inputs.context)
        if tokens < inputs.block_size * 2:
            message = f"no memory for a KV cache: {memory.pool_gib:.1f} GiB are left on each GPU"
            raise not_replayable(message, "Run `penstock explain --memory`.", worker.name)
        self.contexts.append(min(inputs.context, tokens // inputs.block_size * inputs.block_size))
        if worker.runs_prefill and not effective.chunked_prefill.on:
            self._unchunked(worker, inputs.max_batch_tokens)
        processes = self._serving.processes(worker.name)
        replicas = replicas_of(self._serving, worker.component)
        return PoolReplay(
            names=(worker.name,),
            role=worker.role,
            replicas=replicas * max(1, processes),
            gpus=worker.component.gpus // max(1, processes),
            all_gpus=replicas * worker.component.gpus,
            engine=self._engine(worker, effective, inputs, tokens),
        )

    def _unchunked(self, worker: Worker, tokens: int) -> None:
        """Without chunked prefill TensorRT-LLM rejects inputs that are longer than a step, and vLLM
        does not start if the context is longer. SGLang processes it in one longer step, which the
        replay cannot do."""
        if worker.engine is Engine.SGLANG:
            self._leave_out(worker, "prefill without chunks: using chunked prefill instead")
        else:
            self.input_limits.append(InputLimit(pool=worker.name, tokens=tokens))

    def _engine(
        self, worker: Worker, effective: Effective, inputs: MemoryInputs, tokens: int
    ) -> Mapping[str, Any]:
        timing = timing_of(
            self._serving, worker, inputs, ARGUMENT[worker.role][2], self._acceptance
        )
        self._leave_out(worker, *timing.not_simulated, *_not_simulated(worker))
        self.assumed += timing.assumed
        engine: dict[str, Any] = {
            "backend": effective.backend,
            "worker_type": ARGUMENT[worker.role][2],
            "block_size": inputs.block_size,
            "num_gpu_blocks": tokens // inputs.block_size,
            "max_num_seqs": inputs.max_sequences,
            "max_num_batched_tokens": inputs.max_batch_tokens,
            "enable_prefix_caching": effective.prefix_caching.on,
            "enable_chunked_prefill": effective.chunked_prefill.on
            or worker.engine is Engine.SGLANG,
            "timing_model": {"type": "external", "provider": "ais", "config": timing.config},
            **timing.speculation,
        }
        if worker.role is not Role.WORKER:
            engine |= self._transfer(inputs)
        return {"engine": engine, "dp_size": inputs.attention_ranks * inputs.data_parallel}

    def _transfer(self, inputs: MemoryInputs) -> Mapping[str, Any]:
        """KV transfer at line rate; ``kv_transfer_bandwidth`` is in GB/s per worker."""
        gpu, fewest = inputs.gpu, min(w.component.gpus for w in self._serving.workers)
        per_gpu = gpu.nvlink_gbs if self._fabric == "mnnvl" else gpu.nic_gbits / 8
        rate = TCP_GBS if self._fabric == "none" else per_gpu * max(1, fewest)
        name = FABRIC_NAMES.get(self._fabric, f"{self._fabric}, line rate")
        self.assumed.append(f"KV transfer at {rate:g} GB/s ({name})")
        token_bytes = inputs.model.kv_bytes_per_token(inputs.kv_dtype)
        return {"kv_transfer_bandwidth": rate, "kv_transfer_bytes_per_token": token_bytes}


def _not_simulated(worker: Worker) -> Iterator[str]:
    """What is configured and not replayed."""
    names = dict.fromkeys(connector.name for connector in connectors_of(worker))
    offload = [f"KV offload with {name}" for name in names if name not in (*TRANSFERS, *COMPOSED)]
    yield from offload
    for what, keys in NOT_SIMULATED.items():
        is_set = any(worker.get(key) not in (None, False, 0) for key in keys)
        if is_set and not (offload and what == OFFLOAD):  # the keys that a connector has, too
            yield what
    interval = worker.get("stream_interval")
    if isinstance(interval, int) and interval > 1:
        yield f"stream_interval {interval}: using 1 instead"
    if worker.cp > 1 or worker.dcp > 1:
        yield "context parallelism"
    if limit := worker.env("DYN_ENGINE_REQUEST_LIMIT"):
        yield f"request_limit {limit} and queue_limit: no request is refused"


def require_replayed_mode(deployment: Replayable, source: Source) -> None:
    """SimulationError for a mode that would be replayed as round robin, unless there is only one
    worker, which every mode selects."""
    if deployment.router.mode in REPLAYED or (
        deployment.choices == 1 and deployment.planner is None
    ):
        return
    message = f"{deployment.router.mode} cannot be replayed: the replay has {', '.join(REPLAYED)}"
    raise SimulationError(
        router_problem(source, message, "Set the router mode to kv, round-robin or random.")
    )


def router_problem(source: Source, message: str, fix: str) -> Problem:
    """A problem with the router's mode, with its line in a graph."""
    if source.loaded is None:
        return Problem(place="the frontend's --router-mode", message=message, fix=fix)
    line = source.loaded.places.line_of(PLACE)
    return Problem(file=source.loaded.source, line=line, place=PLACE, message=message, fix=fix)
