"""The modules of the engines.

Only what runs or simulates a worker imports them; `penstock check` reads settings without them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engines import llamacpp, mocker, sglang, trtllm, vllm
from penstock.engines.engine import EngineModule
from penstock.manifests.deployment import Engine

ENGINES: Mapping[Engine, EngineModule] = {
    Engine.TRTLLM: trtllm,
    Engine.VLLM: vllm,
    Engine.SGLANG: sglang,
    Engine.LLAMACPP: llamacpp,
    Engine.MOCKER: mocker,
}
