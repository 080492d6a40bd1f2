"""The readiness of a worker against scripted frontends; tests/e2e/test_plain.py has real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from penstock.manifests.render import chart_path
from tests.support.scripted_http import respond, serving

READY = '{"namespaces": {"n-new": {"ready": true}}}'
NOT_READY = '{"namespaces": {"n-new": {"ready": false}, "n-old": {"ready": true}}}'


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, READY, ""),
        (200, NOT_READY, "does not route requests to n-new yet"),
        (503, '{"namespaces": null}', "does not route requests to n-new yet"),
        (404, "", ""),  # Dynamo 1.0
        (404, '{"error": {"message": "Model not found"}}', ""),  # 1.1 and 1.2
        (200, "no JSON", "JSONDecodeError"),
    ],
)
@pytest.mark.parametrize("has_tmp", [True, False])
def test_a_worker_asks_for_its_generation(
    tmp_path: Path, status: int, body: str, problem: str, has_tmp: bool
) -> None:
    """Also if nothing can be written in the temporary folder."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        is_asked = request.path.endswith("/ready")
        text = body if is_asked else json.dumps({"data": [{"id": "org/model"}]})
        respond(request, text.encode(), status if is_asked else 200)

    with serving(handle) as url:
        port = url.rpartition(":")[2].partition("/")[0]
        script = (chart_path() / "files" / "ready.py").read_text("utf-8")
        env = {"DYN_NAMESPACE": "n", "DYN_NAMESPACE_WORKER_SUFFIX": "new"}
        env["TMPDIR"] = str(tmp_path if has_tmp else tmp_path / "none")
        argv = [sys.executable, "-c", script, port, f"127.0.0.1:{port}"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert problem in done.stderr
    assert (done.returncode == 0) is (problem == "")
    assert (tmp_path / "penstock-ready").exists() is (has_tmp and not problem)
