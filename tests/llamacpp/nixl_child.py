"""A worker's end of KV transfers with NIXL: one JSON object per line in, one out.

`python nixl_child.py send|receive` with the packages of environment llamacpp-nixl.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from penstock.llamacpp.nixl_agent import Agent
from penstock.llamacpp.nixl_receiver import NixlReceiver
from penstock.llamacpp.nixl_sender import NixlSender
from penstock.llamacpp.transfer import TransferError

LIMIT_S = 0.5


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
    begun, error, is_equal = time.monotonic(), "", False
    try:
        async with receiver.opened(asked["handle"]) as file:
            size = os.fstat(file).st_size
            is_equal = os.pread(file, size + 1, 0) == content(asked["seed"], asked["size"])
    except TransferError as caught:
        error = str(caught)
    seconds = time.monotonic() - begun
    files = len([*Path("/proc/self/fd").iterdir()])
    stalled = len(receiver._stalled)
    return {
        "equal": is_equal,
        "error": error,
        "seconds": seconds,
        "files": files,
        "stalled": stalled,
    }


async def main(role: str) -> None:
    agent = Agent()
    sender, receiver = NixlSender(agent, 60.0), NixlReceiver(agent, lambda size: LIMIT_S)
    print(json.dumps(agent.name), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        result = send(sender, asked) if role == "send" else await receive(receiver, asked)
        print(json.dumps(result), flush=True)
    receiver.close()
    sender.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
