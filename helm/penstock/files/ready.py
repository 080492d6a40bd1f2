# Readiness of a pod with `platform: plain`: python3 -c SCRIPT PORT [FRONTENDS], run by the kubelet.
# A frontend is ready when it lists a model. A worker is ready when each ready frontend routes
# requests to its generation: then all pools of the generation serve, and an update may stop old
# workers. A pod that was ready stays ready while its process is healthy, so that an outage of one
# pool does not spread to others.
# PORT: of the process's health. FRONTENDS: HOST:PORT of a headless Service; of workers only.
import contextlib
import json
import os
import socket
import sys
import time
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

LISTED = "/v1/models"
http = build_opener(ProxyHandler({}))
# Not tempfile.gettempdir(), which fails if nothing can be written there.
marker = Path(os.environ.get("TMPDIR") or "/tmp") / "penstock-ready"  # noqa: S108
deadline = time.monotonic() + 8  # the kubelet waits 10 s


def read(url):
    with http.open(url, timeout=max(0.1, min(2, deadline - time.monotonic()))) as response:
        return json.load(response)


def models(base):
    return [model["id"] for model in read(base + LISTED)["data"]]


def routes_to(base, namespace):
    for model in models(base):
        try:
            state = read(f"{base}{LISTED}/{quote(model, safe='')}/ready")
        except HTTPError as error:
            if error.code == 404:  # before 1.3, Dynamo does not report its generations
                return True
            state = json.load(error)
        if ((state.get("namespaces") or {}).get(namespace) or {}).get("ready"):
            return True
    return False


def problem(port, frontends):
    own = f"http://127.0.0.1:{port}"
    http.open(own + "/health", timeout=2).close()
    if marker.exists():
        return ""
    if not frontends:
        return "" if models(own) else "the frontend lists no model yet"
    namespace = f"{os.environ['DYN_NAMESPACE']}-{os.environ['DYN_NAMESPACE_WORKER_SUFFIX']}"
    host, port = frontends.split(":")
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except socket.gaierror as error:
        return f"no frontend is ready, or its name cannot be resolved ({host}: {error})"
    for ip in sorted(found):
        base = f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}"
        try:
            if not routes_to(base, namespace):
                return f"the frontend {base} does not route requests to {namespace} yet"
        except (OSError, HTTPException) as error:
            return f"the frontend {base} does not respond: {error!r}"
    return ""


try:
    reason = problem(sys.argv[1], "".join(sys.argv[2:]))
except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
    reason = f"{type(error).__name__}: {error}"
if reason:
    sys.exit(reason)
with contextlib.suppress(OSError):  # it is checked again
    marker.touch()
