"""Rules of what a container runs: whether it can start, and whether it could be read at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from penstock.checks.finding import Fix, Found, Level
from penstock.checks.rule import Rule
from penstock.checks.subject import FRONTEND, WORKERS, Subject
from penstock.engines.settings import At
from penstock.manifests.deployment import Component, Launch, Role

# What `python3 -m dynamo.…` can run, or has below it: the packages of ai-dynamo 1.6.1.
MODULES = (
    *("frontend", "vllm", "sglang", "trtllm", "mocker", "planner", "global_planner", "profiler"),
    *("router", "global_router", "kv_dc_relay", "kv_state_agent", "indexer", "select_service"),
    *("slot_tracker", "squeeze_evolve", "thunderagent_router", "tokenspeed", "triton"),
    *("common", "experimental", "llm", "nixl_connect", "replay", "runtime"),
)


def cannot_start(subject: Subject) -> Iterable[Found]:
    for component, launch in _launches(subject):
        program, word, *_ = (*launch.argv, "", "")
        is_python = program.rsplit("/", 1)[-1] in ("python", "python3")
        if is_python and word.startswith("--") and word not in ("--version", "--help"):
            module = FRONTEND if component.role is Role.FRONTEND else "and the module"
            yield Found(
                at=At(component.name, "args", (word,)),
                message=f"{program} {word}: Python has no such option, and no module is named",
                fix=Fix(words=f"write -m {module} in front of it"),
            )
        module = launch.module or ""
        if module.startswith("dynamo.") and module.split(".")[1] not in MODULES:
            near = get_close_matches(module, [f"dynamo.{name}" for name in MODULES], n=1)
            yield Found(
                at=At(component.name, "args", (module,)),
                message=f"Dynamo has no module {module}",
                fix=Fix(words=f"perhaps you meant {near[0]}" if near else "name one that it has"),
                level=None if near else Level.WARNING,
            )


def _launches(subject: Subject) -> Iterator[tuple[Component, Launch]]:
    for component in subject.deployment.components:
        for launch in component.launches:
            yield component, launch


def not_read(subject: Subject) -> Iterable[Found]:
    for component in subject.deployment.components:
        if component.role in WORKERS and component.engine is None:
            runs = [" ".join(launch.argv[:3]) for launch in component.launches]
            said = f"runs {', '.join(runs)}" if runs else "runs what its image says"
            yield Found(
                at=At(component.name, "field", ("main",)),
                message=f"{component.name} {said}, and no engine that is known here",
                fix=Fix(words="write the command out, such as `python3 -m dynamo.vllm …`"),
                level=None if runs else Level.NOTE,
            )


RULES = (
    Rule(
        id="PS769",
        title="a command that cannot start",
        level=Level.ERROR,
        cause="Python is given a flag without a module, or a module that Dynamo does not have. For "
        "a frontend without a command the operator runs python3 with the args alone.",
        effect="The container ends at once, in a crash loop.",
        remedy="`python3 -m dynamo.frontend` and the like, written out.",
        source="component_frontend.go@132ccbe3; packages of ai-dynamo 1.6.1",
        judge=cannot_start,
    ),
    Rule(
        id="PS770",
        title="a worker whose engine is not known",
        level=Level.WARNING,
        cause="The command runs no module of Dynamo's engines, or the image alone decides.",
        effect="Nothing about its engine, memory and transfer was checked.",
        remedy="Write the command out.",
        source="penstock",
        judge=not_read,
    ),
)
