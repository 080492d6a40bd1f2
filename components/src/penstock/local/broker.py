"""Broker of the ZMQ event plane. Publishers and subscribers connect to it; only the broker binds.

Without a broker, Dynamo's publishers bind every interface regardless of the settings.
Run as `python -m penstock.local.broker XSUB_PORT XPUB_PORT`.
"""

from __future__ import annotations

import sys

import zmq


def main(xsub_port: int, xpub_port: int) -> None:
    # Keep the default action of SIGTERM: Python runs signal handlers only when `zmq.proxy` returns,
    # which never happens under constant traffic.
    context = zmq.Context()
    receive = context.socket(zmq.XSUB)
    send = context.socket(zmq.XPUB)
    for socket in (receive, send):
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 0)  # the router never recovers from a lost KV event
        socket.setsockopt(zmq.SNDHWM, 0)
    receive.bind(f"tcp://127.0.0.1:{xsub_port}")
    send.bind(f"tcp://127.0.0.1:{xpub_port}")
    zmq.proxy(receive, send)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
