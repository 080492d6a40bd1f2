"""llama.cpp as an engine of Dynamo's unified backend: the worker's contract with the runtime.

Dynamo's `Worker` registers the model, serves the endpoint, cancels, drains and shuts down
(`dynamo/common/backend`); this class starts llama.cpp and turns requests into completions.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from dynamo.common.backend.disagg import require_prefill_result
from dynamo.common.backend.engine import EngineConfig, GenerateChunk, LLMEngine, LlmRegistration
from dynamo.common.backend.health_check import build_health_check_payload, is_probe
from dynamo.common.backend.metrics import register_engine_registry
from dynamo.common.backend.publisher import ComponentSnapshot, KvEventSource, PushSource
from dynamo.common.backend.worker import WorkerConfig
from dynamo.common.constants import DisaggregationMode
from dynamo.common.utils.token_ids import normalize_request_token_ids
from dynamo.llm import ModelInput

from penstock.gguf.folder import TOKENIZER, write_folder
from penstock.llamacpp import server
from penstock.llamacpp.arguments import Arguments, parse
from penstock.llamacpp.cancellation import until
from penstock.llamacpp.completion import Completion, KvTransfer
from penstock.llamacpp.grammar import Grammars, Output
from penstock.llamacpp.metrics import Metrics
from penstock.llamacpp.request import Asked, read_request
from penstock.llamacpp.shared_memory import KvFiles
from penstock.llamacpp.slots import KvEvents, Slots
from penstock.llamacpp.token_text import Vocabulary

# Text on which tokenizers differ: digits, scripts, spaces, contractions, special tokens.
SAMPLE = (
    "Hello  World\n\n\tI'll pay 12,345.67 € to naïve Ægir — 漢字とかな, "
    "मनक 😀👩‍👩‍👧! x_1=foo(Bar);\r\n"
)
DRAIN_LIMIT = "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"
CLOSE_S = 2.0  # within the same limit


class LlamaCppEngine(LLMEngine):
    """One llama.cpp server with its slots."""

    def __init__(self, arguments: Arguments, folder: Path) -> None:
        self._arguments = arguments
        self._config = arguments.config
        self._folder = folder
        self._mode = arguments.mode
        self._context_length = 0
        self._server: server.LlamaServer | None = None
        self._slots = Slots(self._config.n_parallel, self._config.block_size)
        self._kv_files = KvFiles()  # of a prefill worker
        self._vocabulary = Vocabulary(folder / TOKENIZER)
        self._grammars = Grammars(None)
        self._metrics = Metrics(self._slots)
        self._events = KvEvents(self._slots)
        self._snapshots: Any = None

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[LlamaCppEngine, WorkerConfig]:
        arguments = parse(argv)
        folder = arguments.model_folder or Path(tempfile.mkdtemp(prefix="penstock-gguf-")) / "model"
        if not folder.exists():
            write_folder(arguments.model, folder)
        name = arguments.served_model_name or arguments.model.stem
        config = WorkerConfig.from_runtime_config(
            arguments.runtime,
            model_name=str(folder),
            served_model_name=name,
            model_input=ModelInput.Tokens,
        )
        return cls(arguments, folder), config

    async def start(self, worker_id: int) -> EngineConfig:
        del worker_id
        self._context_length = self._context()
        # Loading takes seconds, during which the runtime must renew its lease.
        self._server = await asyncio.to_thread(
            server.start, str(self._arguments.model), self._config, self._context_length
        )
        self._grammars = Grammars.of(server.library(), self._vocabulary.special)
        await self._compare_tokenizers(self._server)
        blocks = self._context_length * self._slots.count // self._config.block_size
        self._metrics.total_blocks = blocks
        return EngineConfig(
            model=str(self._folder),
            served_model_name=self._arguments.served_model_name or self._arguments.model.stem,
            llm=LlmRegistration(
                context_length=self._context_length,
                kv_cache_block_size=self._config.block_size,
                total_kv_blocks=blocks,
                max_num_seqs=self._slots.count,
                max_num_batched_tokens=self._config.n_batch,
            ),
        )

    def _context(self) -> int:
        config = json.loads((self._folder / "config.json").read_text("utf-8"))
        trained = int(config["max_position_embeddings"])
        requested = self._config.n_ctx_seq or trained
        if requested > trained:
            raise ValueError(
                f"n_ctx_seq is {requested}, but the model was trained with {trained} tokens"
            )
        return requested

    async def _compare_tokenizers(self, running: server.LlamaServer) -> None:
        """ValueError when the frontend would tokenize differently from llama.cpp."""
        expected = await running.tokenize(SAMPLE)
        encoded = self._vocabulary.encode(SAMPLE)
        if encoded != expected:
            raise ValueError(
                f"{self._folder / TOKENIZER} and llama.cpp tokenize differently: {encoded} and "
                f"{expected}. Copy the model's {TOKENIZER} into the folder of the GGUF file."
            )

    async def generate(self, request: Any, context: Any) -> AsyncGenerator[GenerateChunk, None]:
        """Chunks of tokens as llama.cpp sends them. When the client has left, the request gives up
        its slot or its place in the queue, also before its first token."""
        async for chunk in until(context.async_killed_or_stopped(), self._chunks(request)):
            yield chunk

    async def _chunks(self, request: Any) -> AsyncGenerator[GenerateChunk, None]:
        normalize_request_token_ids(request)
        transferred = None
        if self._mode is DisaggregationMode.DECODE and not is_probe(request):
            result = require_prefill_result(request, self._mode)
            transferred = KvTransfer.read(result["disaggregated_params"])
        try:
            async with aclosing(self._completed(request, transferred)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if transferred is not None:
                transferred.discard()

    async def _completed(
        self, request: Any, transferred: KvTransfer | None
    ) -> AsyncGenerator[GenerateChunk, None]:
        asked = read_request(request, self._context_length, self._config.sampling)
        if asked.has_optional_grammar and await self._grammars.problem(asked.body):
            # A schema of a tool has a keyword that llguidance lacks. vLLM does not refuse it.
            asked = asked.without_grammar()
        await self._grammars.require_valid(asked.body)
        ends = self._vocabulary.names(asked.stop_tokens)
        followed = self._grammars.followed(asked.body)
        asked = replace(asked, body=self._grammars.with_end(asked.body, ends))
        if self._mode is DisaggregationMode.PREFILL:
            files = None if is_probe(request) else self._kv_files
            yield cast(GenerateChunk, await self._completion(asked).prefill(files))
            return
        async with followed as output:
            completion = self._completion(asked, output)
            async with aclosing(completion.chunks(transferred)) as chunks:
                async for chunk in chunks:
                    yield cast(GenerateChunk, chunk)

    def _completion(self, asked: Asked, output: Output | None = None) -> Completion:
        assert self._server is not None, "generate before start"
        return Completion(
            asked=asked,
            server=self._server,
            slots=self._slots,
            vocabulary=self._vocabulary,
            metrics=self._metrics,
            changed=self._changed,
            output=output,
        )

    def _changed(self, slot: int, tokens: tuple[int, ...]) -> None:
        """A slot has new content: tell the router."""
        self._events.publish(self._slots.set_content(slot, tokens))
        if self._snapshots is not None:
            self._snapshots.publish(0, self._snapshot())

    def _snapshot(self) -> ComponentSnapshot:
        used, total = self._slots.used_blocks, self._metrics.total_blocks
        return ComponentSnapshot(
            kv_used_blocks=used,
            kv_total_blocks=total,
            gpu_cache_usage=used / total if total else 0.0,
            kv_cache_hit_rate=self._metrics.hit_rate,
            dp_rank=0,
        )

    async def kv_event_sources(self) -> list[KvEventSource]:
        """None for decode workers: prompts are routed to prefill workers."""
        if self._mode is DisaggregationMode.DECODE:
            return []
        return [PushSource(on_ready=self._events.start, dp_rank=0)]

    def component_metrics_dp_ranks(self) -> list[int]:
        return [0]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        self._snapshots = publisher

    async def register_prometheus(self, metrics: Any) -> None:
        register_engine_registry(metrics, self._metrics.registry)

    async def health_check_payload(self) -> dict[str, Any] | None:
        return build_health_check_payload(self._vocabulary.encode("a")[0])

    async def is_quiescent(self) -> bool:
        """Whether decode workers have read all KV caches of this prefill worker."""
        self._kv_files.drop(time.monotonic())
        return self._kv_files.pending == 0

    async def _wait_idle(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while (self._slots.running or self._slots.waiting) and time.monotonic() < limit:
            await asyncio.sleep(0.02)

    async def cleanup(self) -> None:
        """Finish the requests that are running; those that take too long end with an error that
        lets the frontend migrate them."""
        limit_s = float(os.environ.get(DRAIN_LIMIT, "25")) - 2 * CLOSE_S
        await self._wait_idle(limit_s)
        if self._server is not None:
            await self._server.close()
            await self._wait_idle(CLOSE_S)
            self._server.stop()
            self._server = None
        self._kv_files.close()
        if self._arguments.model_folder is None:
            shutil.rmtree(self._folder.parent, ignore_errors=True)  # the temporary folder
