"""The engines that a graph can run: one module each, listed in `ENGINES`."""

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
