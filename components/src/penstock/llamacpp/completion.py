"""One request on one slot: aggregated, as prefill, or as decode of a prefill's KV."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.llamacpp import shared_memory
from penstock.llamacpp.grammar import Output
from penstock.llamacpp.metrics import Metrics
from penstock.llamacpp.request import Asked
from penstock.llamacpp.server import LlamaServer, SlotError
from penstock.llamacpp.shared_memory import KvFiles, TransferError
from penstock.llamacpp.slots import Slots
from penstock.llamacpp.token_text import Vocabulary

Chunk = dict[str, Any]  # Dynamo's GenerateChunk
log = logging.getLogger(__name__)
UNKNOWN_LOGPROB = -9999.0  # OpenAI's value for a log probability that is not known


@dataclass(frozen=True, kw_only=True)
class KvTransfer:
    """What a prefill worker passes to a decode worker, in `disaggregated_params`."""

    kv: Mapping[str, Any] | None
    """Where the KV of the prompt is."""
    cached: int
    """Tokens of the prompt that the prefill worker found in its slots."""
    first: Chunk | None
    """The first token. None with a grammar, whose state is not passed."""

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> Self:
        return cls(kv=params.get("kv"), cached=params["cached"], first=params.get("first"))

    def write(self) -> dict[str, Any]:
        return {"kv": self.kv, "cached": self.cached, "first": self.first}

    def discard(self) -> None:
        """Let the prefill worker free the KV, which is not needed any more."""
        if self.kv is not None:
            shared_memory.discard(self.kv)


@dataclass(kw_only=True)
class Completion:
    asked: Asked
    server: LlamaServer
    slots: Slots
    vocabulary: Vocabulary
    metrics: Metrics
    changed: Callable[[int, tuple[int, ...]], None]
    """Called with the new content of a slot."""
    output: Output | None = None
    """Of a request with a JSON schema."""
    _output: list[int] = field(default_factory=list)
    _given: int = 0
    """Tokens that the prefill worker generated."""

    async def prefill(self, files: KvFiles | None) -> Chunk:
        """Compute the prompt; the last chunk of a prefill worker. ``files``: keep its KV for a
        decode worker."""
        prompt = self.asked.prompt
        slot, cached = await self._acquire(prompt)
        try:
            # A grammar begins with the first token, so that one must come from the decode worker.
            passes = not self.asked.is_constrained
            body = {**self.asked.body, "prompt": prompt, "id_slot": slot, "n_predict": 1}
            result = await self.server.complete(body)
            self.changed(slot, prompt)
            self.metrics.count_prompt(len(prompt), cached)
            kv = await self._save(files, slot) if files is not None else None
        finally:
            self.slots.release(slot)
        # The frontend takes `stop` as the end of the whole output, and asks no decode worker.
        ends = passes and result["stop_type"] == "eos"
        chunk = self._chunk(list(result["tokens"]), result)
        transferred = KvTransfer(kv=kv, cached=cached, first=chunk if passes else None)
        reason = "stop" if ends else "length"
        return {**chunk, "finish_reason": reason, "disaggregated_params": transferred.write()}

    async def _save(self, files: KvFiles, slot: int) -> dict[str, Any] | None:
        """None when it cannot be saved: the decode worker then computes the prompt."""
        file = files.create(time.monotonic())
        try:
            await self.server.save(slot, file)
            return files.handle(file, time.monotonic())
        except SlotError as error:
            files.discard(file)
            self._lost(error)
            return None
        except BaseException:
            files.discard(file)
            raise

    def _lost(self, error: Exception) -> None:
        log.warning("KV transfer failed, the decode worker computes the prompt: %s", error)
        self.metrics.lost.inc()

    async def chunks(self, transferred: KvTransfer | None) -> AsyncGenerator[Chunk, None]:
        """The output, token by token. The last chunk has the reason and the usage.

        ``transferred``: to a decode worker.
        """
        first = transferred.first if transferred else None
        if transferred is not None and first is not None:
            self._output += first["token_ids"]
            self._given = len(self._output)
            ends = self._ends(None)
            if ends:
                yield {**first, **self._end(ends, transferred.cached)}
                return
            yield {**first, "completion_usage": self._usage(transferred.cached)}
        prompt = (*self.asked.prompt, *self._output)
        slot, cached = await self._acquire(prompt)
        try:
            if transferred is not None:
                await self._restore(transferred, slot)
            reported = cached if transferred is None else transferred.cached
            async for chunk in self._generate(slot, prompt, reported):
                yield chunk
        finally:
            # Only what is certain: a block that the router expects in vain costs a whole prompt.
            kept = prompt[:cached] if transferred is None else ()
            has_output = len(self._output) > self._given
            self.changed(slot, (*self.asked.prompt, *self._output[:-1]) if has_output else kept)
            self.slots.release(slot)

    async def _acquire(self, prompt: tuple[int, ...]) -> tuple[int, int]:
        """A slot, and how many tokens of the prompt it need not compute (never the last one)."""
        slot = await self.slots.acquire(prompt)
        shared = self.slots.shared(slot, prompt)
        self.changed(slot, prompt[:shared])  # llama.cpp drops the rest
        return slot, min(shared, len(prompt) - 1)

    async def _restore(self, transferred: KvTransfer, slot: int) -> None:
        """Read the KV; without it, llama.cpp computes the prompt."""
        if transferred.kv is None:
            return
        begun = time.monotonic()
        try:
            with shared_memory.opened(transferred.kv) as file:
                await self.server.restore(slot, file)
        except (TransferError, SlotError) as error:
            self._lost(error)
            return
        self.metrics.bytes.inc(int(transferred.kv["bytes"]))
        self.metrics.seconds.inc(time.monotonic() - begun)

    async def _generate(
        self, slot: int, prompt: tuple[int, ...], cached: int
    ) -> AsyncGenerator[Chunk, None]:
        limit = self.asked.max_tokens - self._given
        body = {**self.asked.body, "prompt": prompt, "id_slot": slot}
        async with aclosing(self.server.stream({**body, "n_predict": limit})) as events:
            async for event in events:
                tokens = self._tokens(event)
                if self.output is not None:
                    ends_itself = event.get("stop_type") == "eos"
                    self.output.require_allowed(event["content"], ends_itself)
                if event["stop"] and event.get("stop_type") == "limit":
                    tokens += await self._cut_tokens(slot, prompt, event, tokens)
                if tokens and not self._output[self._given :]:
                    self.changed(slot, prompt)
                self._output += tokens
                chunk = self._chunk(tokens, event)
                ends = self._ends("stop" if event.get("stop_type") == "eos" else None)
                if event["stop"] or ends:
                    yield {**chunk, **self._end(ends or "length", cached)}
                    return
                if tokens:
                    # In each chunk: the frontend ends the stream at a stop string.
                    yield {**chunk, "completion_usage": self._usage(cached)}

    def _tokens(self, event: Mapping[str, Any]) -> list[int]:
        """The event's tokens, with those that were held back."""
        tokens = list(event["tokens"])
        sent = len(self._output) - self._given
        missing = int(event["tokens_predicted"]) - sent - len(tokens)
        if not tokens or missing <= 0:
            return tokens
        token_ids = self.vocabulary.tokens(event["content"], tokens[-1], missing + 1)
        return token_ids or ([] if event["stop"] else tokens)

    async def _cut_tokens(
        self, slot: int, prompt: tuple[int, ...], event: Mapping[str, Any], tokens: list[int]
    ) -> list[int]:
        """The tokens after the last whole character, where the limit cuts a character.

        llama.cpp's stream leaves them out, so that they are generated again. A grammar would begin
        again with them.
        """
        if self.asked.is_constrained:
            return []
        sent = [*self._output[self._given :], *tokens]
        missing = int(event["tokens_predicted"]) - len(sent)
        if missing <= 0:
            return []
        body = {**self.asked.body, "prompt": (*prompt, *sent), "id_slot": slot}
        return list((await self.server.complete({**body, "n_predict": missing}))["tokens"])

    def _chunk(self, tokens: list[int], event: Mapping[str, Any]) -> Chunk:
        chunk: Chunk = {"token_ids": tokens, "index": 0}
        if self.asked.top_logprobs is not None and tokens:
            known = event.get("completion_probabilities") or []
            chunk |= self._logprobs(tokens, known)
        return chunk

    def _logprobs(self, tokens: list[int], known: list[Mapping[str, Any]]) -> Chunk:
        """llama.cpp reports only the last of the tokens that it sends together."""
        unknown = len(tokens) - len(known)
        top = self.asked.top_logprobs or 0
        return {
            "log_probs": [UNKNOWN_LOGPROB] * unknown + [float(k["logprob"]) for k in known],
            "top_logprobs": [[] for _ in range(unknown)]
            + [[_alternative(r, a) for r, a in enumerate(k["top_logprobs"][:top])] for k in known],
        }

    def _ends(self, reason: str | None) -> str | None:
        """Why the output is complete, if it is."""
        if reason is not None:
            return reason
        if self._output and self._output[-1] in self.asked.stop_tokens:
            return "stop"
        return "length" if len(self._output) >= self.asked.max_tokens else None

    def _end(self, reason: str, cached: int) -> Chunk:
        if not self._given:
            self.metrics.count_prompt(len(self.asked.prompt), cached)
        self.metrics.output.inc(len(self._output))
        return {"finish_reason": reason, "completion_usage": self._usage(cached)}

    def _usage(self, cached: int) -> dict[str, Any]:
        prompt, output = len(self.asked.prompt), len(self._output)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def _alternative(rank: int, logprob: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rank": rank + 1,
        "token_id": logprob["id"],
        "token": logprob["token"],
        "logprob": float(logprob["logprob"]),
        "bytes": logprob["bytes"],
    }
