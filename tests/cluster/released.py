"""A cluster of the emulator with one release, and `penstock` on it; shared by the verbs' tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from penstock.cli import arguments
from penstock.cli import main as cli
from penstock.cluster.follow import Patience
from tests.cluster.api_server import ApiServer, Object
from tests.cluster.operator import Machine, Operator

ROOT = Path(__file__).parents[2]
NAME = "quick"
MISSING = {"image": "example.com/missing:1.6.1"}
DGD = ("nvidia.com/v1beta1", "dynamographdeployments", "default", NAME)
URL = "/apis/nvidia.com/v1beta1/namespaces/default/dynamographdeployments/quick"


@dataclass
class Cluster:
    """``graph`` is the quickstart's file, free to be edited."""

    api: ApiServer
    operator: Operator
    graph: Path
    kubeconfig: Path
    capsys: pytest.CaptureFixture[str]
    said: list[str] = field(default_factory=list)

    def run(self, verb: str, *arguments: str) -> tuple[int, str]:
        """Exit code, and all that was said."""
        kubeconfig = ("--kubeconfig", str(self.kubeconfig))
        code = cli.main([verb, str(self.graph), *arguments, *kubeconfig])
        heard = self.capsys.readouterr()
        return code, heard.out + heard.err

    def apply(self, *arguments: str) -> tuple[int, str]:
        return self.run("apply", "--yes", *arguments)

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        """The verb as a process of its own, that looks every two seconds."""
        argv = [sys.executable, "-m", "penstock.cli.main", verb, str(self.graph), *arguments]
        return subprocess.Popen(
            [*argv, "--kubeconfig", str(self.kubeconfig)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def edit(self, **sections: dict[str, Any] | str) -> None:
        values = yaml.safe_load(self.graph.read_text())
        for name, section in sections.items():
            inner = {**values.get(name, {}), **section} if isinstance(section, dict) else section
            values[name] = inner
        self.graph.write_text(yaml.safe_dump(values))

    def live(self) -> Object:
        return self.api.store.objects[DGD]

    def replicas(self) -> dict[str, int]:
        return {c["name"]: c["replicas"] for c in self.live()["spec"]["components"]}

    def by_hand(self, component: str, replicas: int, manager: str = "kubectl-edit") -> None:
        """An edit of the live object, as kubectl's."""
        live = httpx.get(f"{self.api.url}{URL}", trust_env=False).json()
        for found in live["spec"]["components"]:
            if found["name"] == component:
                found["replicas"] = replicas
        url = f"{self.api.url}{URL}?fieldManager={manager}"
        httpx.put(url, json=live, trust_env=False).raise_for_status()


@contextmanager
def cluster(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    graph = folder / f"{NAME}.yaml"
    graph.write_text((ROOT / "dynamo_graphs" / "quickstart.yaml").read_text())
    kubeconfig = folder / "kubeconfig"
    quick = Patience(poll_s=0.05, timeout_s=20, final_s=0.4, away_s=2)
    monkeypatch.setattr(arguments, "patience_of", lambda _: quick)
    with ApiServer() as api, Operator(api, Machine()) as operator:
        kubeconfig.write_text(api.kubeconfig)
        yield Cluster(api, operator, graph, kubeconfig, capsys)
