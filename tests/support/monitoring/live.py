"""A graph running on loopback, its metrics, and a real Prometheus that scrapes it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from penstock.drill.graph_process import GraphProcess
from tests.support.monitoring.files import rule_groups
from tests.support.needs import program
from tests.support.waiting import wait_for

INFLIGHT = re.compile(
    r"^dynamo_component_inflight_requests\{.*generate.*\} ([0-9.]+)$", re.MULTILINE
)
REQUESTS_TOTAL = re.compile(r"^dynamo_frontend_requests_total\{.*\} ([0-9.e+]+)$", re.MULTILINE)
POOLS = ("frontend", "prefill", "decode")


def client(timeout_s: float) -> httpx.Client:
    """For one request on loopback; without loading TLS certificates, which takes 50 ms of CPU."""
    return httpx.Client(timeout=timeout_s, trust_env=False, verify=False)


def metrics(address: str) -> str:
    with client(10) as http:
        return http.get(f"http://{address}/metrics").text


@dataclass(frozen=True)
class LiveGraph:
    process: GraphProcess
    path: Path

    def addresses(self) -> dict[str, tuple[str, str]]:
        """Component and host:port of /metrics by process name."""
        return {
            row["name"]: (row["program"], f"127.0.0.1:{row['port'] or row['system_port']}")
            for row in self.process.state()["replicas"]
            if row["program"] in POOLS
        }

    def exported(self) -> dict[str, str]:
        """The exported metrics by component; those of one pool are concatenated."""
        texts: dict[str, str] = {}
        for component, address in self.addresses().values():
            texts[component] = texts.get(component, "") + metrics(address)
        return texts

    def ask(self, tokens: int, *, stream: bool = False, model: str | None = None) -> int:
        """The HTTP status of one chat completion, which is read completely."""
        state = self.process.state()
        body = {
            "model": model or state["models"][0],
            "messages": [{"role": "user", "content": "Hello " * 50}],
            "max_tokens": tokens,
            "stream": stream,
        }
        url = f"{state['endpoint']}/chat/completions"
        with client(60) as http:
            return http.post(url, json=body).status_code

    def requests_total(self) -> float:
        """The sum of `dynamo_frontend_requests_total` as the frontend exports it now."""
        return sum(float(value) for value in REQUESTS_TOTAL.findall(self.exported()["frontend"]))

    def busiest(self, component: str) -> int | None:
        """The pid of a worker of the component with a request in flight."""
        rows = self.process.state()["replicas"]
        for row in (row for row in rows if row["program"] == component):
            text = metrics(f"127.0.0.1:{row['system_port']}")
            if sum(float(value) for value in INFLIGHT.findall(text)) > 0:
                return int(row["pid"])
        return None


class Prometheus:
    """Debian's prometheus on loopback with our rules evaluated every second; a context manager."""

    def __init__(self, folder: Path, addresses: dict[str, tuple[str, str]]) -> None:
        self.folder = folder
        self.addresses = addresses
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    def __enter__(self) -> Prometheus:
        groups = rule_groups()
        for group in groups:
            group["interval"] = "1s"
            for rule in group["rules"]:
                rule.pop("for", None)
                if rule.get("record") == "penstock:slo_minimum:rate":
                    rule["expr"] = "vector(0)"  # the tests send few requests
        (self.folder / "rules.json").write_text(json.dumps({"groups": groups}))
        (self.folder / "prometheus.json").write_text(json.dumps(self.configuration()))
        with (self.folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={self.folder / 'prometheus.json'}",
                    f"--storage.tsdb.path={self.folder / 'tsdb'}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def configuration(self) -> dict[str, Any]:
        """Targets with the labels that a PodMonitor adds, including ``endpoint``."""
        targets = [
            {
                "targets": [address],
                "labels": {
                    "namespace": "ml",
                    "pod": name,
                    "endpoint": "http" if component == "frontend" else "system",
                    "app_kubernetes_io_instance": "quickstart",
                    "app_kubernetes_io_component": component,
                },
            }
            for name, (component, address) in self.addresses.items()
        ]
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.json"],
            "scrape_configs": [{"job_name": "ml/quickstart", "static_configs": targets}],
        }

    def get(self, path: str, **parameters: str) -> Any:
        with client(30) as http:
            response = http.get(f"http://{self.address}/api/v1/{path}", params=parameters)
        response.raise_for_status()
        content = response.json()
        assert content["status"] == "success", content
        return content["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        return list(self.get("query", query=expression)["result"])

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"]}

    def wait(self, done: Callable[[], bool], what: object = "") -> None:
        """AssertionError with ``what`` and Prometheus' log."""

        def is_done() -> bool:
            try:
                return done()
            except httpx.HTTPError:
                return False

        try:
            wait_for(is_done, what, look_s=0.2)
        except AssertionError as error:
            error.add_note((self.folder / "prometheus.log").read_text()[-2000:])
            raise
