"""llama.cpp workers on this machine: the model's files, the packages, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.environments.install import Environment
from penstock.environments.packaged_models import SMOLLM2
from penstock.errors import InputError, MissingToolError
from penstock.local import llamacpp_engine, missing_environment
from penstock.local.adapt import adapt
from penstock.local.deployment import LocalDeployment, Overrides
from penstock.local.llamacpp_engine import GgufModel
from penstock.local.machine import Machine
from penstock.manifests.deployment import Component, Engine, KnownConfig, Role
from tests.local.builders import component, deployment, frontend
from tests.local.test_adapt import no_settings, simulate

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
ARGV = ("python3", "-m", "penstock.llamacpp", "--model", "acme/model", "--served-model-name", "m")
PLANES = ("--namespace", "a", "--request-plane", "nats", "--disaggregation-mode", "prefill")
MODEL = GgufModel(file=Path("/models/a.gguf"), folder=Path("/cache/a"))


@pytest.fixture
def ready(tmp_path: Path) -> Machine:
    """A machine with the environment."""
    python = tmp_path / "llamacpp" / "bin" / "python"
    (tmp_path / "llamacpp" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return Machine(gpus=0, interpreters={"llamacpp": str(python)})


def worker(*more: str, gpus: int = 0, **options: str) -> Component:
    return component(
        "prefill",
        Role.PREFILL,
        *(*ARGV, *PLANES, *more),
        engine=Engine.LLAMACPP,
        gpus=gpus,
        config=KnownConfig(values=options, path="engine.yaml", place="prefill"),
    )


def adapted(
    machine: Machine, overrides: Overrides | None = None, prefill: Component | None = None
) -> LocalDeployment:
    graph = deployment(frontend(), prefill or worker())
    return adapt(
        graph,
        machine,
        overrides or Overrides(),
        lambda model: None,
        simulate,
        no_settings,
        find_gguf=lambda model: MODEL,
    )


def test_a_worker_runs_with_dynamo_and_the_packages_of_its_own_environment(ready: Machine) -> None:
    program = adapted(ready).program("prefill")
    assert program is not None
    assert program.argv == (
        *(sys.executable, "-m", "penstock.llamacpp"),
        *("--model", "/models/a.gguf", "--model-folder", "/cache/a"),
        *("--served-model-name", "m", "--disaggregation-mode", "prefill"),
    )
    site = Path(ready.interpreters["llamacpp"]).parents[1] / "lib/python3.11/site-packages"
    assert program.env["PYTHONPATH"] == str(site)
    assert not program.is_substitute


def test_another_python_finds_penstock_and_no_other_package_of_this_environment(
    ready: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        program = adapted(replace(ready, python="/dynamo/bin/python")).program("prefill")
        assert program is not None
        assert program.argv[0] == "/dynamo/bin/python"
        _, folder = program.env["PYTHONPATH"].split(":")
        assert [p.resolve() for p in Path(folder).iterdir()] == [Path(penstock.__file__).parent]


def test_a_model_folder_of_the_manifest_is_replaced(ready: Machine) -> None:
    program = adapted(ready, prefill=worker("--model-folder", "/in/the/pod")).program("prefill")
    assert program is not None
    assert program.argv.count("--model-folder") == 1
    assert "/in/the/pod" not in program.argv


def test_the_frontend_gets_the_adapter_with_the_engines_rules(ready: Machine) -> None:
    local = adapted(ready)
    program = local.program("frontend")
    assert program is not None
    at = program.argv.index("--adapter-engine")
    assert program.argv[at + 1] == "llamacpp"
    assert any("an adapter rejects parameters" in note for note in local.notes)


def test_without_the_environment_the_fix_is_its_installation() -> None:
    with pytest.raises(MissingToolError) as caught:
        adapted(Machine(gpus=0))
    (problem,) = caught.value.problems
    assert "environment llamacpp" in problem.message
    assert problem.fix == "Run `penstock tools env install llamacpp`, or use `--engine mocker`."


@pytest.mark.parametrize(
    ("graph", "needed"), [("quickstart", ["llamacpp"]), ("quickstart-simulated", [])]
)
def test_up_installs_the_environments_of_the_graph(
    graph: str,
    needed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    installed: list[str] = []

    def install(environment: Environment, *, quiet: bool) -> str:
        installed.append(environment.name)
        return f"installed {environment.name}"

    monkeypatch.setattr(missing_environment, "install", install)
    lines: list[str] = []
    missing_environment.install_missing(GRAPHS / f"{graph}.yaml", (), lines.append)
    assert installed == needed
    assert [line.split()[2] for line in lines[::2]] == needed


def test_with_engine_mocker_it_is_substituted(ready: Machine) -> None:
    local = adapted(ready, Overrides(engine=Engine.MOCKER))
    program = local.program("prefill")
    assert program is not None
    assert program.is_substitute
    assert program.argv[1:3] == ("-m", "dynamo.mocker")
    assert any("using mocker instead of llamacpp (--engine mocker)" in n for n in local.notes)


def test_a_model_that_is_not_on_this_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    for model in ("acme/unknown", str(tmp_path / "missing.gguf")):
        with pytest.raises(InputError) as caught:
            llamacpp_engine.find_gguf(model)
        (problem,) = caught.value.problems
        assert problem.place == "model.path"
        assert repr(model) in problem.message
        assert SMOLLM2 in problem.fix
    with pytest.raises(InputError) as caught:
        llamacpp_engine.find_gguf(SMOLLM2)
    assert "penstock tools env install llamacpp" in caught.value.problems[0].fix


def test_a_file_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="is not a GGUF file"):
        llamacpp_engine.find_gguf(str(file))


def test_model_folders_are_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert llamacpp_engine.cache() == Path("/somewhere/penstock/gguf")
