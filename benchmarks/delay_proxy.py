"""A TCP proxy that holds each request back for some milliseconds; `calibrate.py` starts it.

python benchmarks/delay_proxy.py PORT TARGET_PORT MILLISECONDS
"""

from __future__ import annotations

import asyncio
import sys

CHUNK = 2**16


async def _serve(port: int, target: int, delay_s: float) -> None:
    async def connected(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, out = await asyncio.open_connection("127.0.0.1", target)
        is_new = True  # whether the next bytes of the client are the beginning of a request

        async def requests() -> None:
            nonlocal is_new
            while data := await near.read(CHUNK):
                if is_new:
                    is_new = False
                    await asyncio.sleep(delay_s)
                out.write(data)
                await out.drain()
            out.write_eof()

        async def responses() -> None:
            nonlocal is_new
            while data := await far.read(CHUNK):
                is_new = True
                back.write(data)
                await back.drain()
            back.close()

        await asyncio.gather(requests(), responses(), return_exceptions=True)
        for one in (out, back):
            one.close()

    async with await asyncio.start_server(connected, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
