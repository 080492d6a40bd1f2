"""An OpenAI endpoint with planned latencies, for benchmarks of `penstock bench`.

python benchmarks/scripted_server.py PORT SLOWDOWN

TTFT grows with the prompt, and each response has its own random deviation, as on a real server:
20% for the TTFT and 5% for the time between tokens. ``SLOWDOWN`` multiplies both.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from random import lognormvariate
from typing import Any

LOOPBACK = "127.0.0.1"
TTFT_S, TTFT_S_PER_TOKEN, ITL_S = 0.030, 20e-6, 0.010
TTFT_DEVIATION, ITL_DEVIATION = 0.20, 0.05
LARGEST_HEAD = 2**20
MODEL = "scripted"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(fields: Mapping[str, Any]) -> bytes:
    body = {"id": "1", "object": "text_completion", "model": MODEL, **fields}
    return chunk(b"data: " + json.dumps(body).encode() + b"\n\n")


async def complete(body: Mapping[str, Any], slowdown: float, writer: asyncio.StreamWriter) -> None:
    clock = asyncio.get_running_loop().time
    began, prompt, tokens = clock(), len(body["prompt"]), body["max_tokens"]
    ttft = (TTFT_S + TTFT_S_PER_TOKEN * prompt) * lognormvariate(0, TTFT_DEVIATION)
    itl = ITL_S * lognormvariate(0, ITL_DEVIATION)
    writer.write(HEAD % b"text/event-stream")
    for number in range(tokens):
        await asyncio.sleep(max(0.0, began + slowdown * (ttft + number * itl) - clock()))
        end = "length" if number == tokens - 1 else None
        writer.write(event({"choices": [{"index": 0, "text": "a", "finish_reason": end}]}))
        await writer.drain()
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    writer.write(event({"choices": [], "usage": usage}) + chunk(b"data: [DONE]\n\n") + chunk(b""))
    await writer.drain()


def models() -> bytes:
    body = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
    return HEAD % b"application/json" + chunk(json.dumps(body).encode()) + chunk(b"")


async def answer(
    slowdown: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if head.startswith("get"):
                writer.write(models())
                continue
            length = int(head.partition("content-length:")[2].split()[0])
            await complete(json.loads(await reader.readexactly(length)), slowdown, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client has closed the connection
    finally:
        writer.close()


async def serve(port: int, slowdown: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(slowdown, reader, writer)

    server = await asyncio.start_server(connected, LOOPBACK, port, limit=LARGEST_HEAD)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
