"""An emulated cluster with one release, and `penstock` commands on it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from penstock.cli import arguments
from penstock.cli import main as cli
from penstock.cluster.rollout import Clock
from penstock.errors import PenstockError
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.kubelet import Machine
from tests.support.emulated_cluster.operator import Operator
from tests.support.emulated_cluster.snapshot import Snapshot
from tests.support.emulated_cluster.store import Object

ROOT = Path(__file__).parents[3]
NAME = "quick"
MISSING = {"image": "example.com/missing:1.6.1"}
DGD = ("nvidia.com/v1beta1", "dynamographdeployments", "default", NAME)
URL = "/apis/nvidia.com/v1beta1/namespaces/default/dynamographdeployments/quick"

PROCESS_S = 120.0  # a process on a loaded machine starts slowly
INSTALLED: dict[str, Snapshot] = {}  # by the graph's text


@dataclass(kw_only=True)
class Penstock:
    """Runs verbs for one graph file, which tests edit, on one cluster."""

    graph: Path
    kubeconfig: Path
    capsys: pytest.CaptureFixture[str]
    namespace: str = ""  # default: the context's
    operator: Operator | None = None  # of an emulated cluster

    def run(self, verb: str, *arguments: str) -> tuple[int, str]:
        """The exit code and the whole output."""
        code = cli.main([verb, str(self.graph), *arguments, *self._where()])
        captured = self.capsys.readouterr()
        return code, captured.out + captured.err

    def expect(self, end: int | type[PenstockError], verb: str, *arguments: str) -> str:
        """The whole output of a verb that must exit with this code, or with that of the error."""
        code, output = self.run(verb, *arguments)
        assert code == (end if isinstance(end, int) else end.exit_code), output
        return output

    def start(
        self, verb: str, *arguments: str, terminal: int | None = None
    ) -> subprocess.Popen[str]:
        """Start the verb as a process, which waits in real time, as the controllers do from now on.

        ``terminal``: its standard streams, instead of a pipe.
        """
        if self.operator is not None:
            self.operator.step_in_background()
        argv = [sys.executable, "-m", "penstock.cli.main", verb, str(self.graph), *arguments]
        return subprocess.Popen(
            [*argv, *self._where()],
            stdin=terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    @property
    def clock(self) -> Clock:
        return self.operator.clock if self.operator is not None else Clock()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = self.clock.now() + 600
        while not condition():
            assert self.clock.now() < deadline
            self.clock.sleep(1)

    def _where(self) -> list[str]:
        where = ["--kubeconfig", str(self.kubeconfig)]
        return [*where, "--namespace", self.namespace] if self.namespace else where

    def apply(self, *arguments: str) -> tuple[int, str]:
        return self.run("apply", "--yes", *arguments)

    def edit(self, **sections: dict[str, Any] | str) -> None:
        values = yaml.safe_load(self.graph.read_text())
        for name, section in sections.items():
            inner = {**values.get(name, {}), **section} if isinstance(section, dict) else section
            values[name] = inner
        self.graph.write_text(yaml.safe_dump(values))


@dataclass(kw_only=True)
class Cluster(Penstock):
    """The emulated cluster with access to its internals."""

    api: ApiServer
    operator: Operator

    def wait_for_process(self, condition: Callable[[], bool]) -> None:
        """Until another process has changed an object so that the condition holds."""
        with self.api.store.lock:
            assert self.api.store.lock.wait_for(condition, PROCESS_S)

    def install(self, **sections: dict[str, Any] | str) -> None:
        """Install the graph, edited; the second time in a process from a copy of the first."""
        self.edit(**sections)
        text = self.graph.read_text()
        if text in INSTALLED:
            INSTALLED[text].restore(self.operator)
            return
        code, output = self.apply()
        assert code == 0, output
        INSTALLED[text] = Snapshot.of(self.operator)

    def live(self) -> Object:
        return self.api.store.objects[DGD]

    def replicas(self) -> dict[str, int]:
        return {c["name"]: c["replicas"] for c in self.live()["spec"]["components"]}

    def by_hand(self, component: str, replicas: int, manager: str = "kubectl-edit") -> None:
        """Edit the live object as kubectl does: again if the operator wrote it meanwhile."""
        for _ in range(20):
            live = httpx.get(f"{self.api.url}{URL}", trust_env=False).json()
            for pool in live["spec"]["components"]:
                if pool["name"] == component:
                    pool["replicas"] = replicas
            url = f"{self.api.url}{URL}?fieldManager={manager}"
            done = httpx.put(url, json=live, trust_env=False)
            if done.status_code != 409:
                break
        done.raise_for_status()


def edit_secret(cluster: Cluster, revision: int, edit: Callable[[dict[str, str]], object]) -> None:
    """Edit the labels of the Secret with Helm's record of a revision."""
    key = ("v1", "secrets", "default", f"sh.helm.release.v1.{NAME}.v{revision}")
    secret = dict(cluster.api.store.objects[key])
    labels = dict(secret["metadata"]["labels"])
    edit(labels)
    secret["metadata"] = {**secret["metadata"], "labels": labels}
    cluster.api.store.write(key, secret, trusted=True)


def record_of(secret: Object) -> dict[str, Any]:
    """Helm's record of a revision in a Secret."""
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    return dict(json.loads(gzip.decompress(packed)))


def certificate(folder: Path, curve: str = "P-256") -> tuple[Path, Path]:
    """A certificate of loopback and its key, made by openssl."""
    chain, key = folder / "tls.crt", folder / "tls.key"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}"]
    argv += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key)]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(chain)]
    subprocess.run(argv, check=True, capture_output=True)
    return chain, key


@contextmanager
def cluster(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tls: tuple[Path, Path] | None = None,
) -> Iterator[Cluster]:
    """``tls``: the API server's certificate, with which it can tell users apart.

    On a virtual clock, until a test starts a process or calls `step_in_background`.
    """
    graph = folder / f"{NAME}.yaml"
    graph.write_text((ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text())
    kubeconfig = folder / "kubeconfig"
    with ApiServer(certificate=tls) as api, Operator(api, Machine()) as operator:
        monkeypatch.setattr(arguments, "clock", lambda: operator.clock)
        kubeconfig.write_text(api.kubeconfig)
        yield Cluster(api=api, operator=operator, graph=graph, kubeconfig=kubeconfig, capsys=capsys)
