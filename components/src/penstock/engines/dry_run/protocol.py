"""What penstock asks an engine's own code, and what that responds: one JSON line each.

`process` writes the lines; `vllm_child` and `sglang_child` read them in the engine's environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engines.parsers import launch_in_json
from penstock.manifests.deployment import Launch


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The GPUs that the engine sees instead of those of this machine."""

    # As in `penstock.hardware.GPUS`.
    name: str
    # CUDA architecture: 90 is Hopper.
    sm: int
    memory_gib: float
    # GPUs of one pod.
    count: int


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One worker as the manifest starts it, and its GPUs."""

    launch: Launch
    hardware: Hardware
    # Model in the arguments → folder with its config.json on this machine.
    models: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What the engine chooses for a configuration; None or empty: it does not say."""

    attention_backend: str = ""
    # Tokens of a KV cache block or page.
    block_size: int | None = None
    # Tokens of one step or of one chunk of a prompt.
    max_batch_tokens: int | None = None
    kv_dtype: str = ""
    # The class that transfers KV between pools.
    connector: str = ""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    resolved: Resolved


@dataclass(frozen=True, kw_only=True)
class Refused:
    # The engine's own sentence.
    message: str
    # Whether the code of Dynamo's worker raised it, before it called the engine.
    is_of_dynamo: bool = False


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """The engine's code cannot decide here."""

    # The end of the message of PS187, after a colon.
    reason: str


Outcome = Accepted | Refused | Undecided


def encode(configuration: Configuration) -> str:
    """The line that a child reads. Models are replaced by their folders."""
    launch = launch_in_json(configuration.launch)
    arguments = [_with_folders(word, configuration.models) for word in launch["arguments"]]
    return json.dumps(
        {
            **launch,
            "arguments": arguments,
            "folders": list(configuration.models.values()),
            "hardware": hardware_in_json(configuration.hardware),
        }
    )


def hardware_in_json(hardware: Hardware) -> Mapping[str, Any]:
    return {
        "name": f"NVIDIA {hardware.name.upper()}",
        "capability": divmod(hardware.sm, 10),
        "memory_bytes": int(hardware.memory_gib * 2**30),
        "count": hardware.count,
    }


def decode(line: str, models: Mapping[str, str]) -> Outcome:
    """The outcome in a child's line, with the models' names instead of their folders."""
    fields: Mapping[str, Any] = json.loads(line)
    if fields["outcome"] == "accepted":
        return Accepted(resolved=Resolved(**fields["resolved"]))
    text = str(fields["text"])
    for name, folder in models.items():
        text = text.replace(folder, name)
    if fields["outcome"] == "refused":
        return Refused(message=text, is_of_dynamo=bool(fields.get("is_of_dynamo")))
    return Undecided(reason=text)


def _with_folders(word: str, models: Mapping[str, str]) -> str:
    """An argument, `--flag=argument` or a string in JSON that names a model."""
    for name, folder in models.items():
        if word == name:
            return folder
        if word.startswith("-") and word.endswith(f"={name}"):
            return word.removesuffix(name) + folder
        word = word.replace(json.dumps(name), json.dumps(folder))
    return word
