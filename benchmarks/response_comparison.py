"""Which changes of a deployment `penstock bench shadow A B` finds, and how often it is wrong.

python benchmarks/response_comparison.py [--short]
Writes results/response_comparison.json; continues with the cases that it lacks.

A and B are graphs of SmolLM2-135M-Instruct on llama.cpp, on the CPU. The sizes of
the noise were chosen before the first run; the short context and the counts changed after trials.
--short: 10 requests for two equal graphs and for one changed graph.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
import yaml

import gguf
from penstock.drill.graph_process import GraphProcess
from penstock.environments.packaged_models import SMOLLM2, packaged_model
from penstock.local.ports import Ports
from report import RESULTS, write_result
from shadow_requests import chat_requests, tool_requests, write

NAME = "response_comparison"
START_S = 120.0
NOISES = (0.1, 0.03, 0.01, 0.003, 0.001)  # standard deviation, relative to each scale
NO_SYSTEM = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SHORT_CONTEXT = 72  # tokens
CUTS = (160, 172)  # characters; the messages have 82 to 173


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    first: dict[str, Any] = field(default_factory=dict)
    """Keys of `model` in A's graph."""
    second: dict[str, Any] = field(default_factory=dict)
    """The same of B."""
    noise: float = 0.0
    """Of the weights of B."""
    replaced: tuple[str, str] = ("", "")
    """Text in B's chat template."""
    template: str = ""
    """B's chat template."""
    has_tools: bool = False
    kept_characters: int = 0
    """A proxy in front of B keeps the last characters of each message; 0: no proxy."""
    count: int = 100


CASES = (
    Case(name=f"context of {SHORT_CONTEXT} tokens", second={"context_length": SHORT_CONTEXT}),
    *(Case(name=f"messages cut to {kept} characters", kept_characters=kept) for kept in CUTS),
    *(Case(name=f"weights with noise of {noise:.1%}", noise=noise) for noise in NOISES[:3]),
    Case(name="equal graphs", count=500),
    Case(name="no reasoning parser", first={"reasoning_parser": "deepseek_r1"}),
    Case(name="no tool-call parser", first={"tool_call_parser": "pythonic"}, has_tools=True),
    Case(name="chat template without a system prompt", template=NO_SYSTEM),
    Case(name="chat template with another word", replaced=("a helpful AI", "a careful AI")),
    *(Case(name=f"weights with noise of {noise:.1%}", noise=noise) for noise in NOISES[3:]),
)


def packaged() -> Path:
    path = packaged_model(SMOLLM2, "gguf")
    assert path is not None, "Run `penstock tools env install llamacpp`."
    return path


def with_noise(source: Path, target: Path, noise: float) -> None:
    """Multiplies the scales and minima of all Q4_1 blocks by numbers around 1."""
    shutil.copyfile(source, target)
    target.chmod(0o600)
    random = np.random.default_rng(1)
    for tensor in gguf.GGUFReader(target, "r+").tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q4_1:
            blocks = tensor.data.reshape(-1, 20)  # 2 bytes of scale, 2 of minimum, 16 of values
            scales = np.ascontiguousarray(blocks[:, :4]).view(np.float16)
            factors = 1 + noise * random.standard_normal(scales.shape)
            blocks[:, :4] = (scales * factors).astype(np.float16).view(np.uint8)


def with_template(source: Path, target: Path, case: Case) -> None:
    found = gguf.GGUFReader(source).get_field("tokenizer.chat_template")
    assert found is not None
    old = str(found.contents())
    new = case.template or old.replace(*case.replaced)
    assert new != old
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", str(source), str(target)]
    command += ["--chat-template", new, "--force"]
    subprocess.run(command, check=True, capture_output=True)


def graph(folder: Path, name: str, model: dict[str, Any]) -> Path:
    path = folder / f"{name}.yaml"
    content = {
        "model": {"id": SMOLLM2, "context_length": 1024, **model},
        "engine": {"kind": "llamacpp", "config": {"n_parallel": 2, "n_threads": 1}},
        "worker": {"replicas": 1},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def graphs(case: Case, folder: Path) -> tuple[Path, Path]:
    second, changed = dict(case.second), folder / "changed.gguf"
    if case.noise:
        with_noise(packaged(), changed, case.noise)
    elif case.template or any(case.replaced):
        with_template(packaged(), changed, case)
    if changed.exists():
        second["path"] = str(changed)
    return graph(folder, "a", dict(case.first)), graph(folder, "b", second)


@contextmanager
def cutting(endpoint: str, kept: int) -> Iterator[str]:
    """URL of a proxy that silently keeps the last ``kept`` characters of each message."""

    opener = build_opener(ProxyHandler({}))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._forward(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for message in body["messages"]:
                message["content"] = message["content"][-kept:]
            self._forward(json.dumps(body).encode())

        def _forward(self, body: bytes | None) -> None:
            url = endpoint.removesuffix("/v1") + self.path
            request = Request(url, body, {"Content-Type": "application/json"})
            try:
                opened = opener.open(request, timeout=START_S)
            except HTTPError as error:
                opened = error
            with opened as response:
                self.send_response(response.status)
                self.send_header("Content-Type", response.headers["Content-Type"])
                self.end_headers()
                while part := response.read1():
                    self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def measured(case: Case, count: int) -> dict[str, Any]:
    make = tool_requests if case.has_tools else chat_requests
    with TemporaryDirectory() as scratch, ExitStack() as opened:
        folder = Path(scratch)
        urls = []
        for path in graphs(case, folder):
            own = folder / path.stem
            own.mkdir()
            options = ["--port", str(Ports().free())]
            process = opened.enter_context(GraphProcess(path, own, options))
            urls.append(process.wait_ready(START_S))
        if case.kept_characters:
            urls[1] = opened.enter_context(cutting(urls[1], case.kept_characters))
        requests = write(folder / "requests.jsonl", make(count, seed=1))
        command = ["penstock", "bench", "shadow", *urls, "--file", str(requests), "--json"]
        command += ["--concurrency", "2"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return {"exit code": done.returncode, **summary(json.loads(done.stdout))}


def summary(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": document["verdict"],
        "requests": document["compared"],
        "sent to A twice": document["repeated"],
        "classes": {
            one["name"]: {
                "status": one["status"],
                "A and B": f"{one['differing']} of {one['compared']}",
                "A and A": f"{one['differing_repeated']} of {one['repeated']}",
                "p": float(f"{one['p_value']:.2g}"),
            }
            for one in document["classes"]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    if args.short:
        for case in (Case(name="equal graphs"), CASES[0]):
            print(case.name, json.dumps(measured(case, 10)), flush=True)
        return
    path = RESULTS / f"{NAME}.json"
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    for case in CASES:
        if case.name not in cases:
            cases[case.name] = measured(case, case.count)
            print(case.name, json.dumps(cases[case.name]), flush=True)
            write_result(NAME, f"python benchmarks/{NAME}.py", {"cases": cases}, show=False)


if __name__ == "__main__":
    main()
