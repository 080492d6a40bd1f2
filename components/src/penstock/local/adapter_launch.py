"""Put the request adapter in front of the frontends of a local graph. Pure; `adapt` calls it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import yaml

from penstock.files import page
from penstock.local import tool_template
from penstock.local.deployment import Overrides, Program
from penstock.local.request_adapter.rules import MOCKER
from penstock.manifests import flags
from penstock.manifests.deployment import Role
from penstock.text.values import as_mapping, positive_int

NO_OVERRIDES = Overrides()
FOLDER = Path(__file__).parent / "request_adapter"
FRONTEND = ("-m", "dynamo.frontend")
INNER_PORT = "inner"
TOKENIZER = "tokenizer.json"
MOCKER_LIMIT = 128  # tokens; the mocker never ends its output by itself, and requires a limit
CPU_VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"  # of cpu_engine.environment
# Module of a worker → the adapter's rules, and the option with the folder of the model's config and
# tokenizer files. With several modules, the first: the rules of the mocker are the strictest.
WORKERS = {
    "dynamo.mocker": ("mocker", "--model-path"),
    "dynamo.vllm": ("vllm", "--model"),
    "penstock.llamacpp": ("llamacpp", "--model-folder"),
}


def with_adapter(
    programs: Iterable[Program], overrides: Overrides = NO_OVERRIDES
) -> tuple[list[Program], str | None]:
    """The programs with the adapter in their frontends, and the engine whose rules it applies.

    None when every worker runs on a GPU: there the frontend gets the requests unchanged.
    """
    programs = list(programs)
    local = {
        module
        for p in programs
        for module in p.argv[2:3]
        if p.role is not Role.FRONTEND and _is_local(p)
    }
    engine = next((name for module, (name, _) in WORKERS.items() if module in local), None)
    if engine is None:
        return programs, None
    options = ["--adapter-engine", engine, "--adapter-inner-port", f"{{port:{INNER_PORT}}}"]
    folders = [(worker, folder) for worker in programs if (folder := _model_folder(worker))]
    if engine == MOCKER:
        options += [w for _, f in folders[:1] for w in ("--adapter-tokenizer", f"{f}/{TOKENIZER}")]
    elif not all(tool_template.renders_tools(worker, folder) for worker, folder in folders):
        options += ["--adapter-renders-tools", "0"]
    limits = overrides.limits
    sizes = {"messages": limits.max_messages, "request-kib": limits.max_request_kib}
    for name, size in sizes.items():
        options += [] if size is None else [f"--adapter-max-{name}", str(size)]
    limit = output_limit(programs, engine)
    options += [] if limit is None else ["--adapter-output-limit", str(limit)]
    options += ["--adapter-allow-hosts", ",".join(overrides.hosts)] if overrides.hosts else []
    adapted = [_adapted(p, options) if p.role is Role.FRONTEND else p for p in programs]
    return adapted, engine


def _is_local(worker: Program) -> bool:
    """Whether the worker needs no GPU: any but a vLLM without the variables of a CPU worker."""
    return worker.argv[2:3] != ("dynamo.vllm",) or CPU_VARIABLE in worker.env


def _model_folder(worker: Program) -> str | None:
    module = "".join(worker.argv[2:3])
    return flags.flag_value(worker.argv, WORKERS[module][1]) if module in WORKERS else None


def output_limit(programs: Iterable[Program], engine: str) -> int | None:
    """In tokens, of requests that set none; None: the engine's own. ``engine``: of the rules."""
    if engine == MOCKER:
        return MOCKER_LIMIT
    return min((limit for p in programs if (limit := _n_predict(p)) is not None), default=None)


def _n_predict(worker: Program) -> int | None:
    """The option of `engine.config`, from the file that the worker reads."""
    if worker.argv[2:3] != ("penstock.llamacpp",):
        return None
    file = worker.files.get(flags.flag_value(worker.argv, "--config") or "")
    return positive_int(as_mapping(yaml.safe_load(file or "")).get("n_predict"))


def _adapted(frontend: Program, options: Iterable[str]) -> Program:
    python, *rest = frontend.argv
    if tuple(rest[:2]) != FRONTEND:
        return frontend
    return replace(
        frontend,
        argv=(python, str(FOLDER), *options, *rest[2:]),
        ports=(*frontend.ports, INNER_PORT),
    )


def note(engine: str, programs: Iterable[Program]) -> str:
    """The line for the operator about what differs from the cluster."""
    limit = output_limit(programs, engine)
    default = "" if limit is None else f"sets a missing max_tokens to {limit} and "
    return (
        f"frontend: an adapter {default}rejects parameters that would be ignored "
        f"(see {page('local-engines')})"
    )
