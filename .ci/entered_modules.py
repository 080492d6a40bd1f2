"""Counts the modules and packages of penstock that `check`, `up` and `apply` enter for one graph.

python .ci/entered_modules.py [CHECKOUT…]

`up` runs the graph on mockers until it is ready, and `apply` installs it on an emulated cluster,
so that the counts include what a command imports late.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
GRAPH = "dynamo_graphs/quickstart-simulated.yaml"
READY_S = 120.0
CHILD = """
import atexit, json, sys
from pathlib import Path
def write():
    names = [name for name in sys.modules if name.partition(".")[0] == "penstock"]
    Path(OUTPUT).write_text(json.dumps(names))
atexit.register(write)
from penstock.cli.main import main
sys.exit(main())
"""


def entered(checkout: Path, arguments: list[str], folder: Path, *, ends: bool = True) -> list[str]:
    """The modules in memory when the command ends; without ``ends``, it is stopped when ready."""
    output, log = folder / "modules.json", folder / "log"
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "components" / "src"),
        "PENSTOCK_STATE_HOME": str(folder / "state"),
    }
    with log.open("w") as stream:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD.replace("OUTPUT", repr(str(output))), *arguments],
            cwd=checkout, env=environment, stdout=stream, stderr=stream,
        )  # fmt: skip
        deadline = time.monotonic() + READY_S
        while not ends and child.poll() is None and time.monotonic() < deadline:
            if "ready" in log.read_text():
                child.send_signal(signal.SIGTERM)
                break
            time.sleep(0.2)
        code = child.wait(READY_S)
    if code != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with exit code {code}: {log.read_text()}")
    return sorted(json.loads(output.read_text()))


@contextlib.contextmanager
def emulated_cluster(folder: Path) -> Iterator[Path]:
    """The kubeconfig of a cluster with Dynamo's operator."""
    from tests.support.emulated_cluster.api_server import ApiServer
    from tests.support.emulated_cluster.kubelet import Machine
    from tests.support.emulated_cluster.operator import Operator

    with ApiServer() as api, Operator(api, Machine()) as operator:
        operator.step_in_background()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(api.kubeconfig)
        yield kubeconfig


def measure(checkout: Path) -> dict[str, list[str]]:
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3)]
        check = entered(checkout, ["check", GRAPH], folders[0])
        up = entered(checkout, ["up", GRAPH, "--port", "0"], folders[1], ends=False)
        kubeconfig = stack.enter_context(emulated_cluster(folders[2]))
        command = ["apply", GRAPH, "--yes", "--kubeconfig", str(kubeconfig), "--timeout-s", "100"]
        return {"check": check, "up": up, "apply": entered(checkout, command, folders[2])}


def main() -> int:
    for checkout in [Path(name).resolve() for name in sys.argv[1:]] or [ROOT]:
        for command, modules in measure(checkout).items():
            packages = {name.split(".")[1] for name in modules if "." in name}
            print(f"{checkout}: {command}: {len(modules)} modules, {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
