"""Manifests that are meant to exhaust the reader or its terminal: each is a finding, quickly."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.manifests.source import open_sources
from tests.checks.support import dump

SECONDS, BYTES = 20, 2**30  # of CPU time and of address space, for all files together
IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1"


def dgd(args: tuple[str, ...] = ("--model", "m"), **worker: Any) -> str:
    """A small deployment; ``env`` and ``command`` are those of the worker's container.

    ``sidecars``: the arguments of its other containers.
    """
    main = {"name": "main", "image": IMAGE}
    container = main | {"command": worker.pop("command", ["python3", "-m", "dynamo.vllm"])}
    container |= {"args": list(args), "env": worker.pop("env", [])}
    frontend = main | {"command": ["python3", "-m", "dynamo.frontend"]}
    sidecars = [
        container | {"name": f"sidecar-{number}", "args": sidecar}
        for number, sidecar in enumerate(worker.pop("sidecars", ()))
    ]

    volumes = worker.pop("volumes", [])
    if volumes:
        container["volumeMounts"] = [{"name": "c", "mountPath": "/etc/c"}]

    def component(name: str, *containers: dict[str, Any]) -> dict[str, Any]:
        template = {"spec": {"containers": list(containers), "volumes": volumes}}
        return {"name": name, "type": name, "podTemplate": template}

    components = [component("frontend", frontend)]
    components.append(component("worker", container, *sidecars) | worker)
    document = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "g"},
        "spec": {"components": components},
    }
    return dump(document)


def variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def nested_aliases(levels: int) -> str:
    lines = ["x0: &x0 [a,a,a,a,a,a,a,a,a,a]"]
    for level in range(1, levels):
        lines.append(f"x{level}: &x{level} [{','.join([f'*x{level - 1}'] * 10)}]")
    return "\n".join(lines) + "\n"


def script(text: str) -> str:
    return dgd((text,), command=["bash", "-c"])


def config_map(key: str, text: str) -> str:
    metadata = {"name": "c"}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}}
    return dump(document) + "---\n"


CONFIG = [{"name": "c", "configMap": {"name": "c"}}]
DOUBLED = [variable("A0", "x" * 16)]
DOUBLED += [variable(f"A{i}", f"$(A{i - 1})$(A{i - 1})") for i in range(1, 40)]
# Name → the manifest, and a part of the finding's message.
HOSTILE = {
    "doubling": (dgd(("--model", "$(A39)"), env=DOUBLED), "expands to more than 131072"),
    "self-reference": (dgd(env=[variable("A", "x$(A)$(A)")] * 50), "expands to more than 131072"),
    "long-argument": (
        dgd(("--model", "$(A)" * 10), env=[variable("A", "x" * 100_000)]),
        "an argument expands to more than 131072",
    ),
    "many-arguments": (
        dgd(("--model", *["$(A)"] * 5000), env=[variable("A", "x" * 130_000)]),
        "the arguments and variables expand to more than 2097152 characters in total",
    ),
    "many-variables": (
        dgd(env=[variable("A", "x" * 130_000), *(variable(f"B{i}", "$(A)") for i in range(3000))]),
        "the arguments and variables expand to more than 2097152 characters in total",
    ),
    "many-long-containers": (
        dgd(env=[variable("A", "x" * 100_000)], sidecars=[["$(A)"] * 15] * 50),
        "expand to more than 8388608 characters in total, the limit for a file",
    ),
    "replicas": (dgd(replicas=10**9), "must be at most 10000, got 1000000000"),
    "nodes": (dgd(multinode={"nodeCount": 10**9}), "must be at most 10000, got 1000000000"),
    "digits": (dgd().replace("name: g", "name: g\n  x: " + "9" * 5000), ""),
    "model": (dgd(("--model", "m" * 300)), "has a part of 300 bytes"),
    "long-model": (dgd(("--model", "m" * 100_000)), "has a part of 100000 bytes"),
    "nul": (dgd().replace("- m\n", '- "m\\0"\n'), r"contains the control character \x00"),
    "escape": (dgd().replace("- m\n", '- "m\\e]0;x\\a"\n'), r"the control character \x1b"),
    "escape-in-key": (dgd() + '"x\\e[2J": 1\n', r"the control character \x1b"),
    "c1": (dgd().replace("name: g", 'name: "g\\x9b2J"'), r"the control character \x9b"),
    "aliases": (nested_aliases(12) + dgd(), ""),
    "alias-of-itself": ("a: &a [*a]\n" + dgd(), "refers to a value that contains it"),
    "deep-list": ("a: " + "[" * 3000 + "]" * 3000 + "\n" + dgd(), "nested more than 50 levels"),
    "deep-mapping": (dgd() + "x: " + "{a: " * 3000 + "1" + "}" * 3000, "nested more than 50"),
    "open-references": (dgd(env=[variable("X", "$(" * 20_000)]), ""),
    "endless-text": (script("A=xx; while true; do A=$A$A; done; python3 -m dynamo.vllm $A"), ""),
    "fork-bomb": (script("f() { f & f; }; f; python3 -m dynamo.vllm"), "start no process"),
    "large": (
        "a: '" + "x" * 3_000_000 + "'\n---\n" + dgd(),
        "the limit for a manifest, without its CRDs, is 1.5 MiB",
    ),
    "many-documents": (
        config_map("..", "") * 200 + dgd(),
        "more than 100 problems; the rest is not listed",
    ),
    "huge": (dgd() + "# " + "x" * 17_000_000, "is larger than 16 MiB, the limit"),
    "huge-graph": ("a: '" + "x" * 3_000_000 + "'", "the limit for a graph is 1.5 MiB"),
    "deep-json": (
        dgd(("--model", "m", "--kv-transfer-config", "[" * 30_000)),
        "--kv-transfer-config is '[[[",
    ),
    "deep-json-object": (
        dgd(("--model", "m", "--kv-transfer-config", '{"a":' * 900 + "1" + "}" * 900)),
        """--kv-transfer-config is '{"a":{"a":""",
    ),
    "many-deployments": ("---\n".join([dgd()] * 300), "has 300 DynamoGraphDeployments; the limit"),
    "many-sidecars": (
        dgd(sidecars=[["--model", "m"]] * 300),
        "the containers up to here start 201 processes; the limit for a file is 200",
    ),
    "long-script": (
        script("python3 -m dynamo.vllm --model m; " * 20_000),
        "an argument expands to more than 131072 characters",
    ),
    "long-script-file": (
        config_map("run.sh", "python3 -m dynamo.vllm --model m; " * 20_000)
        + dgd(command=["bash", "/etc/c/run.sh"], volumes=CONFIG),
        "the script has 680000 characters; the limit is 131072",
    ),
    "many-programs": (
        script("for i in {1..200}; do for j in {1..200}; do a; done; done"),
        "the script starts more than 1000 programs",
    ),
    "key-of-configmap": (config_map("../../x", "") + dgd(), "'../../x' is not a valid file name"),
    "huge-parallelism": (
        dgd(("--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "9" * 12)),
        "32 attention heads are not divisible by tensor parallelism 999999999999",
    ),
    "braces": (script("python3 -m dynamo.vllm {1..9999}{1..9999}"), "start no process"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    for name, (text, _) in HOSTILE.items():
        (path / f"{name}.yaml").write_text(text)
    return path


@pytest.fixture(scope="module")
def findings(folder: Path) -> dict[str, list[str]]:
    """File name → messages, from one `penstock check` with limits."""
    files = sorted(map(str, folder.glob("*.yaml")))
    argv = [sys.executable, "-m", "penstock.cli.main", "check", "--json", *files]
    done = subprocess.run(argv, capture_output=True, text=True, preexec_fn=_limit)
    assert done.returncode == 14, done.stderr
    found: dict[str, list[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(Path(finding["file"]).stem, []).append(finding["message"])
    return found


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_is_a_finding(name: str, findings: dict[str, list[str]]) -> None:
    expected = HOSTILE[name][1]
    assert any(expected in message for message in findings[name]), findings[name]
    assert all(character >= " " for message in findings[name] for character in message)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_is_opened_or_rejected(name: str, folder: Path) -> None:
    message = ""
    try:
        assert open_sources(folder / f"{name}.yaml")
    except PenstockError as error:
        message = str(error)
    assert "\x1b" not in message
    assert len(message) < (20_000 if name == "many-documents" else 5_000)
