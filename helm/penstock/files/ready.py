# Readiness of a pod with `platform: plain`: python3 -c SCRIPT PORT [FRONTENDS], run by the kubelet.
# A frontend is ready when it lists a model. A worker is ready when each ready frontend routes
# requests to its generation: then all pools of the generation serve, and an update may stop old
# workers. A pod that was ready stays ready while its process is healthy, so that an outage of one
# pool does not spread to others.
# PORT: of the process's health. FRONTENDS: HOST:PORT of a Service without an IP; of workers only.
import contextlib
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

LISTED = "/v1/models"
http = build_opener(ProxyHandler({}))
marker = Path(tempfile.gettempdir()) / "penstock-ready"


def read(base, path):
    try:
        with http.open(base + path, timeout=2) as response:
            return json.load(response)
    except HTTPError as error:
        # A release of Dynamo that does not report its generations responds with 404 and no body.
        return json.loads(error.read() or "null")


def models(base):
    return [model["id"] for model in read(base, LISTED)["data"]]


def routes_to(base, namespace):
    for model in models(base):
        state = read(base, f"{LISTED}/{quote(model, safe='')}/ready")
        if state is None or state.get("namespaces", {}).get(namespace, {}).get("ready"):
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
    found = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    for ip in sorted(found):
        base = f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}"
        if not routes_to(base, namespace):
            return f"the frontend {base} does not route requests to {namespace} yet"
    return ""


try:
    reason = problem(sys.argv[1], "".join(sys.argv[2:]))
except socket.gaierror:
    reason = "no frontend is ready"
except (OSError, ValueError, LookupError) as error:
    reason = f"{type(error).__name__}: {error}"
if reason:
    sys.exit(reason)
with contextlib.suppress(OSError):  # it is checked again
    marker.touch()
