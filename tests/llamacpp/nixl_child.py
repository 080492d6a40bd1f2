"""A worker's end of KV transfers with NIXL: one JSON object per line in, one out.

`python nixl_child.py send|receive` with the packages of environment llamacpp-nixl.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.llamacpp.nixl_agent import Agent
from penstock.llamacpp.nixl_receiver import NixlReceiver
from penstock.llamacpp.nixl_sender import NixlSender
from penstock.llamacpp.transfer import TransferError

LIMIT_S = 60.0  # of a transfer, unless the request has one


def content(seed: int, size: int) -> bytes:
    """Bytes that no other seed has."""
    return random.Random(seed).randbytes(size)


def send(sender: NixlSender, asked: dict[str, Any]) -> Any:
    if "drop" in asked:
        sender.drop(asked["drop"])
        return sender.pending
    file = sender.create(asked["now"])
    os.write(file, content(asked["seed"], asked["size"]))
    return sender.handle(file, asked["now"])


async def receive(receiver: NixlReceiver, asked: dict[str, Any]) -> Any:
    if "discard" in asked:
        receiver.discard(asked["discard"])
        return None
    if "stalled" in asked:
        await in_thread_of(receiver, receiver._free_stalled)
        return len(receiver._stalled)
    if "cancel" in asked:
        return await cancel(receiver, asked["cancel"])
    receiver.limit_s = lambda size: asked.get("limit_s", LIMIT_S)
    error, is_equal = "", False
    try:
        async with receiver.opened(asked["handle"]) as file:
            size = os.fstat(file).st_size
            is_equal = os.pread(file, size + 1, 0) == content(asked["seed"], asked["size"])
    except TransferError as caught:
        error = str(caught)
    files, stalled = open_files(), len(receiver._stalled)
    return {"equal": is_equal, "error": error, "files": files, "stalled": stalled}


async def cancel(receiver: NixlReceiver, handle: dict[str, Any]) -> int:
    """Cancel a transfer that runs; the number of open files when its thread has ended."""

    async def opened() -> None:
        async with receiver.opened(handle):
            raise AssertionError("it was not cancelled in time")

    task = asyncio.ensure_future(opened())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await in_thread_of(receiver, bool)
    await asyncio.sleep(0)
    return open_files()


async def in_thread_of(receiver: NixlReceiver, function: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(receiver._thread, function)


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def main(role: str) -> None:
    agent = Agent()
    sender, receiver = NixlSender(agent, 60.0), NixlReceiver(agent)
    print(json.dumps(agent.name), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        result = send(sender, asked) if role == "send" else await receive(receiver, asked)
        print(json.dumps(result), flush=True)
    receiver.close()
    sender.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
