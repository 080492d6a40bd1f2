"""llama.cpp's server in this process, and requests to it over loopback HTTP.

HTTP is its complete interface: streaming, cancellation by closing the connection, slots.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from penstock.llamacpp.config import LlamaCppConfig

# Of the last event; the others are the whole prompt as text, and all parameters.
RESPONSE_FIELDS = ["content", "tokens", "stop", "stop_type", "tokens_predicted", "timings"]
RESPONSE_FIELDS += ["completion_probabilities"]
KV_FOLDER = "/proc/self/fd/"  # KV caches are saved to memory files of this process
LONGEST_LINE = 2**22
STOPPED = "llama.cpp has stopped"
# Of llama.cpp's messages → what is wrong with the request.
GRAMMAR_ERRORS = {
    "failed to parse grammar": "llama.cpp cannot parse the grammar of this request as GBNF. The "
    "log of the worker has the position.",
    "Unexpected empty grammar stack": "The grammar of this request contains a token that ends the "
    "output. Remove it: llama.cpp adds it at the end of the grammar.",
}
OPTIONAL = ("n_ubatch", "n_gpu_layers")
ALL_LAYERS = 9999  # more than any model has; -1 is llama.cpp's default: as many as fit


def start(model: str, config: LlamaCppConfig, context_length: int) -> LlamaServer:
    """Load the model; RuntimeError when llama.cpp cannot."""
    import xllamacpp  # of the environment llamacpp; the tests of this package run without it

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = config.n_parallel
    params.n_ctx = context_length * config.n_parallel
    params.kv_unified = False  # each slot has its own context
    params.slot_save_path = KV_FOLDER
    params.endpoint_slots = True
    params.n_threads_http = config.n_parallel + 4
    params.n_batch = config.n_batch
    params.cache_ram_mib = 0  # its content would not be in the KV events
    # Otherwise llama.cpp drops the KV before a sliding window, and computes a shorter prefix again.
    params.swa_full = True
    params.warmup = False
    # Threads of llama.cpp wait for each other in loops. With more of them than free cores, a token
    # takes 400 ms instead of 12 ms.
    threads = config.n_threads or max(1, len(os.sched_getaffinity(0)) // 2)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    for name, value in optional(config).items():
        setattr(params, name, value)
    return LlamaServer(xllamacpp.Server(params))


def optional(config: LlamaCppConfig) -> Mapping[str, int]:
    """Parameters that replace llama.cpp's defaults."""
    options = {name: value for name in OPTIONAL if (value := getattr(config, name)) is not None}
    if options.get("n_gpu_layers") == -1:
        options["n_gpu_layers"] = ALL_LAYERS
    return options


def library() -> Path:
    """llama.cpp's shared library, which the module xllamacpp is."""
    from xllamacpp import xllamacpp

    return Path(xllamacpp.__file__)


class SlotError(Exception):
    """A KV cache could not be written or read; it can be computed again."""


class LlamaServer:
    """Requests to one server; used from one event loop."""

    def __init__(self, server: Any) -> None:
        self._server: Any = server
        self._address = str(server.listening_address)
        self._session: aiohttp.ClientSession | None = None
        self._closed = asyncio.Event()
        self._responses: set[aiohttp.ClientResponse] = set()

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a completion. Closing the iterator cancels it in llama.cpp."""
        content = {**body, "stream": True, "return_tokens": True, "cache_prompt": True}
        content["response_fields"] = RESPONSE_FIELDS
        async with self._post_to("/completion", content) as response:
            if response.status != 200:
                raise _error(response.status, await response.text())
            async for line in response.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise _error(500, line.decode())
                    yield event
                elif line.startswith(b"error: "):
                    raise _error(500, line.decode())

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a completion at once, with the ids of all its tokens."""
        content = {**body, "stream": False, "return_tokens": True, "cache_prompt": True}
        content["response_fields"] = RESPONSE_FIELDS
        return await self._post("/completion", content)

    async def save(self, slot: int, file: int) -> int:
        """Write a slot's KV to a file descriptor of this process; returns the bytes."""
        return int((await self._slot(slot, "save", file))["n_written"])

    async def restore(self, slot: int, file: int) -> int:
        """Read a slot's KV from a file descriptor of this process; returns the tokens."""
        return int((await self._slot(slot, "restore", file))["n_restored"])

    async def _slot(self, slot: int, action: str, file: int) -> dict[str, Any]:
        """SlotError when llama.cpp cannot, which it reports like a client's mistake."""
        try:
            return await self._post(f"/slots/{slot}?action={action}", {"filename": str(file)})
        except InvalidArgument as error:
            raise SlotError(str(error)) from None

    async def tokenize(self, text: str) -> list[int]:
        content = {"content": text, "parse_special": True, "add_special": False}
        return list((await self._post("/tokenize", content))["tokens"])

    async def close(self) -> None:
        """Requests that still run fail with EngineShutdown, so that the frontend migrates them."""
        self._closed.set()
        for response in [*self._responses]:
            # Closing the session alone would leave their readers waiting forever.
            response.content.set_exception(EngineShutdown(STOPPED))
        if self._session is not None:
            await self._session.close()

    def stop(self) -> None:
        """Stop llama.cpp; blocks until its threads have ended."""
        self._server = None  # its destructor stops the server

    @asynccontextmanager
    async def _post_to(
        self, path: str, content: Mapping[str, Any]
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        if self._closed.is_set():
            raise EngineShutdown(STOPPED)
        try:
            async with await self._response(path, content) as response:
                self._responses.add(response)
                try:
                    yield response
                finally:
                    self._responses.discard(response)
        except aiohttp.ClientError as error:
            raise EngineShutdown(f"llama.cpp: {error}") from error

    async def _response(self, path: str, content: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """The response when its headers have arrived; EngineShutdown when `close` is earlier."""
        session = self._client()
        request = asyncio.ensure_future(session.post(path, json=content))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({request, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                raise EngineShutdown(STOPPED)
            return request.result()
        except asyncio.CancelledError:
            if request.done() and not request.cancelled() and request.exception() is None:
                request.result().close()
            raise
        finally:
            request.cancel()
            closed.cancel()

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                self._address,
                # llama.cpp's server closes a connection that is idle for 5 s, also while a request
                # is on its way to it.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=LONGEST_LINE,
            )
        return self._session

    async def _post(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        async with self._post_to(path, content) as response:
            text = await response.text()
            if response.status != 200:
                raise _error(response.status, text)
            return dict(json.loads(text))


def _error(status: int, text: str) -> Exception:
    """llama.cpp's message: a wrong request is the client's, everything else the engine's."""
    try:
        message = str(json.loads(text.partition("data: ")[2] or text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = text.strip()
    for words, explained in GRAMMAR_ERRORS.items():
        if words in message:
            return InvalidArgument(explained)
    return InvalidArgument(message) if 400 <= status < 500 else EngineShutdown(message)
