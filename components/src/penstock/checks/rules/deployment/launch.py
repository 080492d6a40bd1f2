"""Rules of what a container runs: whether it can start, and whether it could be read at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Launch, Role
from penstock.serving.deployment import FRONTEND, ServingDeployment
from penstock.serving.worker import WORKERS

# What `python3 -m dynamo.…` can run, or has below it: the packages of ai-dynamo 1.6.1.
MODULES = (
    *("frontend", "vllm", "sglang", "trtllm", "mocker", "planner", "global_planner", "profiler"),
    *("router", "global_router", "kv_dc_relay", "kv_state_agent", "indexer", "select_service"),
    *("slot_tracker", "squeeze_evolve", "thunderagent_router", "tokenspeed", "triton"),
    *("common", "experimental", "llm", "nixl_connect", "replay", "runtime"),
)
# Options of Python's own.
PYTHONS = ("--version", "--help", "--check-hash-based-pycs")
SHELLS, SCRIPT = ("sh", "bash", "dash", "zsh", "ash"), ("-c", "-lc", "-ec", "-xc", "-euc", "-exc")
POSITIONAL = re.compile(r"\$\{?[@*0-9]|\b(shift|getopts)\b|\bfor\s+\w+\s*(;|\n|do\b)")
TWO_FLAGS = re.compile(r"--[\w.-]+[= ]\S* --\w")


@rule(
    id="PS769",
    title="a command that cannot start",
    level=Level.ERROR,
    cause="Python is given a flag without a module, or a module that Dynamo does not have. For "
    "a frontend without a command the operator runs python3 with the args alone.",
    effect="The container ends at once, in a crash loop.",
    remedy="`python3 -m dynamo.frontend` and the like, written out.",
    source="component_frontend.go@132ccbe3; packages of ai-dynamo 1.6.1",
)
def cannot_start(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component, launch in _launches(deployment):
        program, word, *_ = (*launch.argv, "", "")
        if " " in program.strip() and not launch.shell:
            yield RuleResult(
                location=Location(component.name, "field", ("main", "command")),
                message=f"the program is called {program!r}, with spaces",
                fix=Fix(text="a word for each entry of command: no shell splits it"),
            )
        is_python = program.rsplit("/", 1)[-1] in ("python", "python3")
        is_flag = word.startswith("--") and word not in PYTHONS and launch.module is None
        if is_python and is_flag:
            module = FRONTEND if component.role is Role.FRONTEND else "and the module"
            yield RuleResult(
                location=Location(component.name, "args", (word,)),
                message=f"{program} {word}: Python has no such option, and no module is named",
                fix=Fix(text=f"write -m {module} in front of it"),
            )
        module = launch.module or ""
        if module.startswith("dynamo.") and module.split(".")[1] not in MODULES:
            near = get_close_matches(module, [f"dynamo.{name}" for name in MODULES], n=1)
            yield RuleResult(
                location=Location(component.name, "args", (module,)),
                message=f"Dynamo has no module {module}",
                fix=Fix(text=f"perhaps you meant {near[0]}" if near else "name one that it has"),
                level=None if near else Level.WARNING,
            )


@rule(
    id="PS771",
    title="arguments that do not arrive",
    level=Level.ERROR,
    cause="What follows the script of `bash -c` are its positional parameters; what stands in "
    "one entry is one word.",
    effect="The engine starts without them, with its defaults, or does not know the flag.",
    remedy="All of the command in the script, or an entry a word.",
    source="POSIX sh; Kubernetes' command and args",
)
def swallowed(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for container in deployment.pods[component.name].containers:
            words = [str(w) for k in ("command", "args") for w in container.cursor[k].texts() or ()]
            lost = _after_script(words)
            if lost:
                yield RuleResult(
                    location=Location(component.name, "args", (lost[0],)),
                    message=f"{' '.join(lost)}: behind the script of -c, which does not use it",
                    fix=Fix(text="write them into the script"),
                )
    for component, launch in _launches(deployment):
        for word in launch.arguments if not launch.shell else ():
            if TWO_FLAGS.match(word):
                yield RuleResult(
                    location=Location(component.name, "args", (word.partition("=")[0],)),
                    message=f"{word!r} is one word: no shell splits it",
                    fix=Fix(text="an entry for each flag and each value"),
                )


def _after_script(words: list[str]) -> list[str]:
    """Flags behind `bash -c SCRIPT` that the script does not ask for."""
    if len(words) < 4 or words[0].rsplit("/", 1)[-1] not in SHELLS or words[1] not in SCRIPT:
        return []
    uses = POSITIONAL.search(words[2])
    return words[3:] if not uses and any(word.startswith("-") for word in words[3:]) else []


def _launches(deployment: ServingDeployment) -> Iterator[tuple[Component, Launch]]:
    for component in deployment.components:
        for launch in component.launches:
            yield component, launch


@rule(
    id="PS770",
    title="a worker whose engine is not known",
    level=Level.WARNING,
    cause="The command runs no module of Dynamo's engines, or the image alone decides.",
    effect="Nothing about its engine, memory and transfer was checked.",
    remedy="Write the command out.",
    source="penstock",
)
def not_read(deployment: ServingDeployment) -> Iterable[RuleResult]:
    known = {worker.name for worker in deployment.workers}
    for component in deployment.components:
        if component.role in WORKERS and component.name not in known:
            runs = [" ".join(launch.argv[:3]) for launch in component.launches]
            said = f"runs {', '.join(runs)}" if runs else "runs what its image says"
            yield RuleResult(
                location=Location(component.name, "field", ("main",)),
                message=f"{component.name} {said}, and no engine that is known here",
                fix=Fix(text="write the command out, such as `python3 -m dynamo.vllm …`"),
                level=None if runs else Level.NOTE,
            )
