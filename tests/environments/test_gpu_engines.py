"""The environments trtllm, vllm and sglang: their pins, and where they can be installed."""

from __future__ import annotations

import re
from importlib.metadata import requires

import pytest

from penstock.environments.install import FOLDER, list_environments
from penstock.environments.interpreter import (
    GPU_ENGINES,
    MACHINES,
    require_platform,
    require_python,
)
from penstock.errors import MissingToolError
from penstock.manifests.deployment import Engine

PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)( ; platform_machine == '(?P<on>\w+)')?"
)
EXACT = re.compile(
    r"(?P<name>[\w-]+)(\[[\w,]+\])?==(?P<version>[\w.]+) *; extra == '(?P<extra>\w+)'"
)
ENGINES = sorted(GPU_ENGINES)


def pins(name: str) -> list[re.Match[str]]:
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    pins = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert None not in pins
    return [pin for pin in pins if pin is not None]


def test_every_engine_for_gpus_has_an_environment() -> None:
    assert set(ENGINES) == {e.value for e in Engine if e not in (Engine.MOCKER, Engine.LLAMACPP)}
    assert set(ENGINES) <= {environment.name for environment in list_environments()}


@pytest.mark.parametrize("name", ENGINES)
def test_the_versions_are_those_that_ai_dynamo_names(name: str) -> None:
    named = [m for line in requires("ai-dynamo") or () if (m := EXACT.fullmatch(line))]
    exact = {m["name"]: m["version"] for m in named if m["extra"] == name}
    assert exact  # at least the engine
    pinned = {pin["name"]: pin["version"] for pin in pins(name)}
    assert {each: pinned.get(each) for each in exact} == exact
    assert {"ai-dynamo", "ai-dynamo-runtime", "torch", "nvidia-cublas"} <= pinned.keys()


@pytest.mark.parametrize("name", ENGINES)
def test_each_package_is_pinned_once_per_machine(name: str) -> None:
    for machine in MACHINES:
        names = [pin["name"] for pin in pins(name) if pin["on"] in (None, machine)]
        assert len(names) == len(set(names)) > 200
    assert {pin["on"] for pin in pins(name)} <= {None, *MACHINES}


@pytest.mark.parametrize("name", ENGINES)
def test_elsewhere_than_on_linux_the_installation_is_refused(name: str) -> None:
    for machine in MACHINES:
        require_platform(name, "Linux", machine)
    with pytest.raises(MissingToolError, match=rf"{name}: .*this machine is Darwin on arm64\. Fix"):
        require_platform(name, "Darwin", "arm64")
    with pytest.raises(MissingToolError, match="Linux on riscv64"):
        require_platform(name, "Linux", "riscv64")


def test_environments_without_an_engine_for_gpus_are_not_restricted() -> None:
    require_platform("harmony", "Darwin", "arm64")
    require_python("harmony", "3.13")
