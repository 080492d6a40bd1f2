"""What the environments trtllm, vllm and sglang need of a machine: Linux and the Python of their
images."""

from __future__ import annotations

from penstock.errors import MissingToolError

# TensorRT-LLM names Python 3.10 and 3.12; one of its dependencies has no wheel for 3.13.
PYTHON = {"trtllm": "3.12", "vllm": "3.12", "sglang": "3.12"}
MACHINES = ("x86_64", "aarch64")


def require_platform(name: str, system: str, machine: str) -> None:
    """``system`` and ``machine`` as in module `platform`. MissingToolError where environment
    ``name`` has no packages."""
    if name not in PYTHON or (system == "Linux" and machine in MACHINES):
        return
    raise MissingToolError(
        f"its packages exist for Linux on {' and '.join(MACHINES)}, and this machine "
        f"is {system} on {machine}",
        place=name,
        fix="Run the graph here with `--engine mocker`.",
    )
