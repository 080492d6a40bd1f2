"""Helm's writes, in a child process named as the release's field manager, by default `helm`.

Helm uses the name of its process as the field manager. In penstock's process that would be
`python`: a second manager besides that of the Helm CLI or of a GitOps controller, and neither could
change what the other one wrote. The child process also completes its write if penstock is killed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock import helm
from penstock.cluster.ownership import HELM
from penstock.helm import HelmError, HelmErrorKind, ReleaseTarget


def write(function: str, target: ReleaseTarget, manager: str = HELM, **arguments: object) -> None:
    """Call a function of `penstock.helm`, such as `install`. Raises HelmError."""
    request = {"function": function, "target": dataclasses.asdict(target), "arguments": arguments}
    name = Path(sys.executable).with_name(manager)  # only argv[0]: the file need not exist
    done = subprocess.run(
        [str(name), "-P", "-m", "penstock.cluster.helm_writer"],
        executable=sys.executable,
        input=json.dumps(request, default=str),
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # a Ctrl-C in the terminal does not interrupt the write
    )
    try:
        error = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise HelmError(
            HelmErrorKind.CLUSTER, f"the Helm process exited without a result: {last}"
        ) from None
    if error is not None:
        raise HelmError(HelmErrorKind(error["kind"]), error["detail"])


def main() -> None:
    """Execute the request that is read from the standard input."""
    response = os.dup(1)
    os.dup2(2, 1)  # what the SDK prints is not part of the response
    request = json.load(sys.stdin)
    fields = request["target"]
    kubeconfig = Path(fields.pop("kubeconfig")) if fields["kubeconfig"] else None
    target = ReleaseTarget(**{**fields, "kubeconfig": kubeconfig})
    arguments: dict[str, Any] = request["arguments"]
    if "chart" in arguments:
        arguments["chart"] = Path(arguments["chart"])
    error = None
    try:
        getattr(helm, request["function"])(target, **arguments)
    except HelmError as problem:
        error = {"kind": problem.kind, "detail": str(problem)}
    os.write(response, json.dumps(error).encode())


if __name__ == "__main__":
    main()
