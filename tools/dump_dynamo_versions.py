"""Write what the parsers of each version of Dynamo accept, as JSON: `make versions`.

    uv run python tools/dump_dynamo_versions.py FOLDER > dynamo_versions.json

A child process with --own reads each version in its environment in FOLDER, such as dynamo-1.7. The
default version is that of penstock's environment.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dump_dynamo_flags import MINIMAL
from penstock.engines.flags import load
from penstock.engines.parse_child import PARSERS, parsers_noted

# Arguments of SGLang itself need SGLang; these are Dynamo's own.
GROUPS = {"dynamo.sglang": ("dynamo.sglang.backend_args", "DynamoSGLangArgGroup")}
# Variables that the chart writes and no flag names.
VARIABLES = (
    "DYN_DYNAMO_REQUEST_QUEUE_LIMIT",
    "DYN_ENGINE_REQUEST_LIMIT",
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS",
    "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS",
    "DYN_HTTP_OVERLOAD_STATUS_CODE",
    "DYN_NAMESPACE_WORKER_SUFFIX",
    "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS",
    "DYN_TRTLLM_PUBLISH_METRICS",
    "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT",
)
# In the help of a flag whose variable has a new name, as of --engine-request-limit in 1.7.
RENAMED = re.compile(r"env var: (\w+) \(legacy alias: (\w+)\)")
POLICY_TYPE = "dynamo-default-cost-fn"


@contextlib.contextmanager
def variables_noted() -> Iterator[None]:
    """Keep with each action the environment variable that gives its default."""
    utils: Any = import_module("dynamo.common.configuration.utils")
    real_default, real_add = utils.env_or_default, argparse._ActionsContainer.add_argument
    last: list[str] = []

    def default(name: str, *args: Any, **options: Any) -> Any:
        last[:] = [name]
        return real_default(name, *args, **options)

    def add(self: Any, *args: Any, **options: Any) -> argparse.Action:
        action = real_add(self, *args, **options)
        if last:
            action.variable = last.pop()  # type: ignore[attr-defined]
        return action

    utils.env_or_default = default
    argparse._ActionsContainer.add_argument = add  # type: ignore[method-assign]
    try:
        yield
    finally:
        utils.env_or_default = real_default
        argparse._ActionsContainer.add_argument = real_add  # type: ignore[method-assign]


def described(action: argparse.Action) -> dict[str, Any]:
    """All spellings, the default as text, choices, variable, and Dynamo's notice of removal."""
    entry: dict[str, Any] = {"spellings": sorted(action.option_strings, key=lambda s: (-len(s), s))}
    if action.default not in (None, argparse.SUPPRESS):
        entry["default"] = str(getattr(action.default, "value", action.default))
    if action.choices is not None:
        entry["choices"] = sorted(str(getattr(c, "value", c)) for c in action.choices)
    if hasattr(action, "variable"):
        entry["variable"] = action.variable
    elif (renamed := RENAMED.search(action.help or "")) is not None:
        entry |= {"variable": renamed[1], "legacy_variable": renamed[2]}
    if (notice := deprecation(action)) is not None:
        entry |= {"remove_in": notice.remove_in, "replacement": notice.replacement}
    return entry


def deprecation(action: argparse.Action) -> Any:
    """Dynamo's object with `remove_in` and `replacement`, which the action's method refers to."""
    call: Callable[..., Any] = type(action).__call__
    cells = [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
    owners = [getattr(content, "__self__", content) for content in cells]
    return next((owner for owner in owners if hasattr(owner, "remove_in")), None)


def flags_of(module: str) -> dict[str, Any]:
    noted: list[argparse.Action] = []
    quiet = io.StringIO()
    with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet), variables_noted():
        if module in GROUPS:
            name, group = GROUPS[module]
            parser = argparse.ArgumentParser(add_help=False)
            getattr(import_module(name), group)().add_arguments(parser)
            noted += parser._actions
        else:
            parse = PARSERS[module]()
            noting = parsers_noted(lambda parser: noted.extend(parser._actions))
            with noting, contextlib.suppress(SystemExit, Exception):
                parse(MINIMAL[module])
    if not noted:
        sys.exit(f"{module} has no parser: {quiet.getvalue()}")
    engines_own = _spellings_of_vllm() if module == "dynamo.vllm" else set()
    found = {
        a.option_strings[0]: described(a)
        for a in noted
        if a.option_strings and not engines_own & set(a.option_strings)
    }
    return dict(sorted(found.items()))


def _spellings_of_vllm() -> set[str]:
    """vLLM's flags, which come from a table here and not from the version."""
    return {s for option in load("vllm_flags.json")["options"] for s in option["flags"]}


def own() -> dict[str, Any]:
    """What this interpreter's Dynamo accepts."""
    os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] = "127.0.0.1"
    dynamos = [module for module in PARSERS if module.startswith("dynamo.")]
    modules = {module: flags_of(module) for module in sorted((*dynamos, *GROUPS))}
    core: Any = import_module("dynamo._core")
    root = Path(core.__file__).parent
    code = b"".join(p.read_bytes() for p in (*root.glob("*.so"), *root.rglob("*.py")))
    return {
        "version": importlib.metadata.version("ai-dynamo"),
        "modules": modules,
        "variables": [name for name in VARIABLES if name.encode() in code],
        "reads_policy_file": POLICY_TYPE.encode() in code,
    }


def child(python: str) -> dict[str, Any]:
    """As `own`, of another interpreter."""
    from penstock.engines.parsers import child_env
    from penstock.files import only_penstock

    with tempfile.TemporaryDirectory(prefix="penstock-versions-") as folder:
        done = subprocess.run(
            [python, __file__, "--own"],
            env={
                **child_env(),
                "TMPDIR": folder,
                "PYTHONPATH": str(only_penstock(Path(folder) / "path")),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"{python}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def every(folder: Path) -> dict[str, Any]:
    from penstock.graph.versions import DEFAULT, VERSIONS, WITHOUT_WHEEL, minor

    versions = {}
    for version in (v for v in VERSIONS if v not in WITHOUT_WHEEL):
        environment = folder / f"dynamo-{minor(version)}"
        python = sys.executable if version == DEFAULT else str(environment / "bin" / "python")
        found = child(python)
        if found.pop("version") != version:
            sys.exit(f"{python} does not have Dynamo {version}")
        versions[version] = found
    return {"made_by": "tools/dump_dynamo_versions.py", "versions": versions}


def main() -> None:
    if "--own" in sys.argv:
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print
        print(json.dumps(own()), file=out, flush=True)
        os._exit(0)  # the native runtime's threads
    json.dump(every(Path(sys.argv[1]).absolute()), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
