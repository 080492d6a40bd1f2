"""One request on one slot, against a server that the test plays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from penstock.llamacpp.completion import UNKNOWN_LOGPROB, Chunk, Completion, KvTransfer
from penstock.llamacpp.grammar import Output
from penstock.llamacpp.metrics import Metrics
from penstock.llamacpp.request import Asked
from penstock.llamacpp.server import LlamaServer, SlotError
from penstock.llamacpp.shared_memory import KvFiles
from penstock.llamacpp.slots import Slots
from penstock.llamacpp.token_text import Vocabulary
from penstock.tokenizer import FOLDER

PROMPT = (1, 2, 3, 4, 5)
KV = b"keys and values"


def event(token: int, count: int, *, stop: bool = False, **more: Any) -> dict[str, Any]:
    """An event of llama.cpp with one token, the ``count``-th."""
    stop_type = "limit" if stop else "none"
    fields = {"content": "x", "tokens": [token], "stop": stop, "stop_type": stop_type}
    return {**fields, "tokens_predicted": count, **more}


class FakeServer:
    """Sends given events; its slots write and read files."""

    def __init__(self, events: Sequence[dict[str, Any]] = (), error: Exception | None = None):
        self.events, self.error = events, error
        self.bodies: list[Mapping[str, Any]] = []
        self.restored: list[bytes] = []
        self.cannot_restore = False
        self.closed = 0
        self.result: dict[str, Any] | None = None  # of `complete`; None: the last event

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        self.bodies.append(body)
        try:
            for sent in self.events:
                yield sent
            if self.error is not None:
                raise self.error
        finally:
            self.closed += 1

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        return self.result or self.events[-1]

    async def save(self, slot: int, file: int) -> int:
        return os.write(file, KV)

    async def restore(self, slot: int, file: int) -> int:
        if self.cannot_restore:
            raise SlotError("no space")
        self.restored.append(os.pread(file, 100, 0))
        return len(PROMPT)


class Worker:
    """What the completions of one worker share."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.slots = Slots(2, 4)
        self.metrics = Metrics(self.slots)
        self.files = KvFiles(60.0)

    def completion(self, prompt: tuple[int, ...] = PROMPT, **asked: Any) -> Completion:
        output = asked.pop("output", None)
        body = {"prompt": prompt, "max_tokens": 8, "body": {"temperature": 0}}
        return Completion(
            asked=Asked(**{**body, **asked}),
            server=cast(LlamaServer, self.server),
            slots=self.slots,
            vocabulary=Vocabulary(FOLDER / "tokenizer.json"),
            metrics=self.metrics,
            changed=lambda slot, tokens: self.slots.set_content(slot, tokens) and None,
            output=output,
        )

    def chunks(self, completion: Completion, transferred: KvTransfer | None = None) -> list[Chunk]:
        async def collect() -> list[Chunk]:
            async with aclosing(completion.chunks(transferred)) as chunks:
                return [chunk async for chunk in chunks]

        return asyncio.run(collect())

    def prefill(self, **asked: Any) -> Chunk:
        return asyncio.run(self.completion(**asked).prefill(self.files))

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"llamacpp_{name}")


def transferred(chunk: Chunk) -> KvTransfer:
    return KvTransfer.read(chunk["disaggregated_params"])


def test_each_chunk_has_the_usage_so_far() -> None:
    """The frontend ends a stream at a stop string, before the worker's last chunk."""
    worker = Worker(FakeServer([event(7, 1), event(8, 2), event(9, 3, stop=True)]))
    usages = [chunk["completion_usage"] for chunk in worker.chunks(worker.completion())]
    assert [usage["completion_tokens"] for usage in usages] == [1, 2, 3]
    assert all(usage["prompt_tokens_details"] == {"cached_tokens": 0} for usage in usages)


def test_the_last_chunk_has_the_reason_and_the_usage() -> None:
    worker = Worker(FakeServer([event(7, 1), event(8, 2), event(9, 3, stop=True)]))
    chunks = worker.chunks(worker.completion())
    assert [chunk["token_ids"] for chunk in chunks] == [[7], [8], [9]]
    assert chunks[-1]["finish_reason"] == "length"
    usage = chunks[-1]["completion_usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 3, 8)
    assert worker.slots.content[0] == (*PROMPT, 7, 8), "the last token is in no KV cache"
    assert worker.metric("generated_tokens_total") == 3


def test_a_repeated_prompt_reports_all_tokens_but_the_last_as_cached() -> None:
    worker = Worker(FakeServer([event(7, 1, stop=True)]))
    first, second = (worker.chunks(worker.completion())[-1] for _ in range(2))
    cached = [
        c["completion_usage"]["prompt_tokens_details"]["cached_tokens"] for c in (first, second)
    ]
    assert cached == [0, 4]


@pytest.mark.parametrize(
    ("last", "asked", "reason"),
    [
        (event(9, 2, stop=True, stop_type="eos"), {}, "stop"),
        (event(9, 2), {"stop_tokens": frozenset({9})}, "stop"),
        (event(9, 2), {"max_tokens": 2}, "length"),
    ],
)
def test_the_output_ends(last: dict[str, Any], asked: dict[str, Any], reason: str) -> None:
    worker = Worker(FakeServer([event(7, 1), last, event(1, 3)]))
    chunks = worker.chunks(worker.completion(**asked))
    assert [chunk.get("finish_reason") for chunk in chunks] == [None, reason]
    assert (worker.server.closed, worker.slots.running) == (1, 0)


def test_tokens_that_were_held_back_come_with_the_last_one() -> None:
    vocabulary = Vocabulary(FOLDER / "tokenizer.json")
    encoded = vocabulary.encode("漢")
    assert len(encoded) > 1
    held = event(encoded[-1], len(encoded), content="漢", completion_probabilities=[
        {"logprob": -0.5, "top_logprobs": []}
    ])  # fmt: skip
    worker = Worker(FakeServer([held, event(3, len(encoded) + 1, stop=True)]))
    first, _ = worker.chunks(worker.completion(top_logprobs=0))
    assert first["token_ids"] == encoded
    assert first["log_probs"] == [UNKNOWN_LOGPROB] * (len(encoded) - 1) + [-0.5]


def test_tokens_of_a_character_that_the_limit_cuts_are_generated_again() -> None:
    """llama.cpp's last event has neither their text nor their ids."""
    last = {**event(0, 3, stop=True, stop_type="limit"), "tokens": [], "content": ""}
    worker = Worker(FakeServer([event(7, 1), last]))
    worker.server.result = {"tokens": [8, 9], "stop_type": "limit"}
    chunks = worker.chunks(worker.completion(max_tokens=3))
    assert [chunk["token_ids"] for chunk in chunks] == [[7], [8, 9]]
    assert chunks[-1]["completion_usage"]["completion_tokens"] == 3
    assert worker.server.bodies[1]["prompt"] == (*PROMPT, 7)
    assert worker.server.bodies[1]["n_predict"] == 2


def test_with_a_grammar_they_are_left_out() -> None:
    """It would begin again with them."""
    last = {**event(0, 3, stop=True, stop_type="limit"), "tokens": [], "content": ""}
    worker = Worker(FakeServer([event(7, 1), last]))
    chunks = worker.chunks(worker.completion(max_tokens=3, body={"json_schema": {}}))
    assert [chunk["token_ids"] for chunk in chunks] == [[7], []]
    assert chunks[-1]["finish_reason"] == "length"
    assert len(worker.server.bodies) == 1


def test_an_output_that_the_schema_does_not_allow_is_not_sent() -> None:
    class Strict(Output):
        def __init__(self) -> None:
            self.seen: list[tuple[str, bool]] = []

        def require_allowed(self, text: str, ends: bool) -> None:
            self.seen.append((text, ends))
            if len(self.seen) == 2:
                raise InvalidArgument("the schema is too complex")

    worker, output = Worker(FakeServer([event(7, 1), event(8, 2), event(9, 3)])), Strict()
    sent: list[Chunk] = []

    async def collect() -> None:
        async with aclosing(worker.completion(output=output).chunks(None)) as chunks:
            async for chunk in chunks:
                sent.append(chunk)

    with pytest.raises(InvalidArgument, match="too complex"):
        asyncio.run(collect())
    assert [chunk["token_ids"] for chunk in sent] == [[7]]
    assert output.seen == [("x", False), ("x", False)]
    assert worker.slots.running == 0

    ended = Worker(FakeServer([event(7, 1, stop=True, stop_type="eos")]))
    output = Strict()
    ended.chunks(ended.completion(output=output))
    assert output.seen == [("x", True)]


def test_decode_continues_after_the_first_token_of_prefill_with_its_kv() -> None:
    prefill = Worker(FakeServer([event(7, 1, stop=True)]))
    handed = transferred(prefill.prefill())
    assert prefill.server.bodies[0]["n_predict"] == 1
    assert prefill.slots.content[0] == PROMPT

    decode = Worker(FakeServer([event(8, 1), event(9, 2, stop=True)]))
    chunks = decode.chunks(decode.completion(), handed)
    assert [chunk["token_ids"] for chunk in chunks] == [[7], [8], [9]]
    assert chunks[-1]["completion_usage"]["completion_tokens"] == 3
    assert decode.server.restored == [KV]
    assert decode.server.bodies[0]["prompt"] == (*PROMPT, 7)
    assert decode.server.bodies[0]["n_predict"] == 7
    assert decode.metric("kv_transfer_bytes_total") == len(KV)
    assert prefill.files.pending == 0, "the file is empty"


def test_with_a_grammar_decode_generates_the_first_token_too() -> None:
    grammar = {"body": {"grammar": 'root ::= "a"'}}
    prefill = Worker(FakeServer([event(7, 1, stop=True)]))
    handed = transferred(prefill.prefill(**grammar))
    assert handed.first is None
    decode = Worker(FakeServer([event(8, 1, stop=True)]))
    (chunk,) = decode.chunks(decode.completion(**grammar), handed)
    assert chunk["token_ids"] == [8]
    assert decode.server.bodies[0]["prompt"] == PROMPT


@pytest.mark.parametrize("failure", ["prefill died", "llama.cpp cannot read it"])
def test_without_the_kv_decode_computes_the_prompt(failure: str) -> None:
    prefill = Worker(FakeServer([event(7, 1, stop=True)]))
    handed = transferred(prefill.prefill())
    decode = Worker(FakeServer([event(8, 1, stop=True)]))
    if failure == "prefill died":
        prefill.files.close()
    else:
        decode.server.cannot_restore = True
    chunks = decode.chunks(decode.completion(), handed)
    assert [chunk["token_ids"] for chunk in chunks] == [[7], [8]]
    assert decode.metric("kv_transfer_failures_total") == 1
    assert decode.metric("kv_transfer_bytes_total") == 0


def test_an_output_of_one_token_needs_no_slot_of_decode() -> None:
    prefill = Worker(FakeServer([event(7, 1, stop=True)]))
    handed = transferred(prefill.prefill(max_tokens=1))
    decode = Worker(FakeServer())
    (chunk,) = decode.chunks(decode.completion(max_tokens=1), handed)
    assert (chunk["token_ids"], chunk["finish_reason"]) == ([7], "length")
    assert decode.server.bodies == []
    assert prefill.files.pending == 1
    handed.discard()  # as the engine does at the end of each request
    handed.discard()
    assert prefill.files.pending == 0


def test_an_end_token_at_prefill_ends_the_output_there() -> None:
    prefill = Worker(FakeServer([event(2, 1, stop=True, stop_type="eos")]))
    assert prefill.prefill()["finish_reason"] == "stop"


def test_a_failed_request_frees_its_slot_and_claims_no_content() -> None:
    worker = Worker(FakeServer(error=EngineShutdown("stopped")))
    with pytest.raises(EngineShutdown):
        worker.chunks(worker.completion())
    assert worker.slots.running == 0
    assert worker.slots.content[0] == ()


def test_a_cancelled_request_claims_what_was_generated() -> None:
    worker = Worker(FakeServer([event(7, 1), event(8, 2), event(9, 3)]))

    async def leave() -> None:
        async with aclosing(worker.completion().chunks(None)) as chunks:
            async for chunk in chunks:
                if chunk["token_ids"] == [8]:
                    return

    asyncio.run(leave())
    assert (worker.slots.running, worker.server.closed) == (0, 1)
    assert worker.slots.content[0] == (*PROMPT, 7)
