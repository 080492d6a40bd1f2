"""llama.cpp's own server alone: prints its address, and serves until stdin ends.

python llamacpp_child.py MODEL CONTEXT SLOTS THREADS    With the packages of environment llamacpp.
"""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    model, context, slots, threads = sys.argv[1], *map(int, sys.argv[2:])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.kv_unified = False
    params.cache_ram_mib = 0
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
