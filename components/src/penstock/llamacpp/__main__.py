"""`python -m penstock.llamacpp`: one worker, until SIGTERM."""

from __future__ import annotations

from dynamo.common.backend.run import run

from penstock.llamacpp.engine import LlamaCppEngine

if __name__ == "__main__":
    run(LlamaCppEngine)
