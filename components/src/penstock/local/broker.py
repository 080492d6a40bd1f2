"""The ZMQ event plane's broker: publishers and subscribers connect to it, so only it binds.

Dynamo's direct publishers bind every interface whatever is set; with a broker they bind nothing.
Run as `python -m penstock.local.broker XSUB_PORT XPUB_PORT`.
"""

from __future__ import annotations

import signal
import sys

import zmq


def main(xsub_port: int, xpub_port: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    context = zmq.Context()
    receive = context.socket(zmq.XSUB)
    send = context.socket(zmq.XPUB)
    for socket in (receive, send):
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 0)  # a lost KV event makes the router wrong for good
        socket.setsockopt(zmq.SNDHWM, 0)
    receive.bind(f"tcp://127.0.0.1:{xsub_port}")
    send.bind(f"tcp://127.0.0.1:{xpub_port}")
    zmq.proxy(receive, send)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
