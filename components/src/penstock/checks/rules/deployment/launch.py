"""Rules about a container's command: whether it can start, and which engine it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from penstock.checks.absence import EVERY_RELEASE, Absence, outside
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.command_line.given_flags import absent_in, has_published_image
from penstock.checks.version_range import Versions
from penstock.engines import entry_points
from penstock.engines.settings import Location
from penstock.manifests import flags
from penstock.manifests.deployment import Component, Launch, Role
from penstock.nearest import nearest
from penstock.serving.deployment import FRONTEND, ServingDeployment
from penstock.serving.worker import WORKERS

# The operator's default command, from 81c27803 on (between 0.4.0 and 0.5.0).
DEFAULT_SHELL = Versions(dynamo=">=0.5")
SINCE_0_6 = Versions(dynamo=">=0.6")
PACKAGE = "dynamo."
SIMILAR = 0.75  # of a suggested module
NAME_MAX = 255  # bytes of one part of a path
# Options of the Python interpreter.
PYTHON_OPTIONS = ("--version", "--help", "--check-hash-based-pycs")
SHELLS, SCRIPT = ("sh", "bash", "dash", "zsh", "ash"), ("-c", "-lc", "-ec", "-xc", "-euc", "-exc")
INTERPRETERS = (*SHELLS, "python", "python3", "node", "perl")
POSITIONAL = re.compile(r"\$\{?[@*0-9]|\b(shift|getopts)\b|\bfor\s+\w+\s*(;|\n|do\b)")
TWO_FLAGS = re.compile(r"--[\w.-]+[= ]\S* --\w")


def cannot_start(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component, launch in _launches(deployment):
        program, word, *_ = (*launch.argv, "", "")
        if " " in program.strip() and not launch.shell:
            yield RuleResult(
                location=Location(component.name, "field", ("main", "command")),
                message=f"the program name {program!r} contains spaces",
                fix=Fix(text="Write each word as an entry of command; no shell splits it."),
            )
        options = _options_of_shell(deployment, component)
        if options:
            yield RuleResult(
                location=Location(component.name, "args", options),
                message=f"the operator runs /bin/sh -c, which takes {options[0]} as its script",
                fix=Fix(text="Set command, such as [python3, -m, dynamo.vllm]."),
                versions=DEFAULT_SHELL,
            )
            continue
        is_python = program.rsplit("/", 1)[-1] in ("python", "python3")
        if is_python and " " in word.strip() and launch.module is None and not launch.shell:
            yield RuleResult(
                location=Location(component.name, "args", (word,)),
                message=f"{program} looks for a file with the name {word!r}",
                fix=Fix(text="Write each word as an entry of args; no shell splits it."),
                # Operators before 0.6 ran the args of a frontend with `sh -c`.
                versions=None if _has_command(deployment, component) else SINCE_0_6,
            )
        is_flag = word.startswith("--") and word not in PYTHON_OPTIONS and launch.module is None
        if is_python and is_flag:
            module = FRONTEND if component.role is Role.FRONTEND else "MODULE"
            yield RuleResult(
                location=Location(component.name, "args", (word,)),
                message=f"{program} has no option {word}, and the command names no module",
                fix=Fix(text=f"Insert -m {module} before {word}."),
            )
        yield from _absent_module(deployment, component, launch.module or "")


def _absent_module(
    deployment: ServingDeployment, component: Component, module: str
) -> Iterator[RuleResult]:
    """The results if Dynamo has no such module, or other releases than the image's have it."""
    if not module.startswith("dynamo.") or module.split(".")[1] in entry_points.OF_RUNTIME:
        return
    # By the part after `dynamo.`, so that only a typing error is corrected.
    names = {name.removeprefix(PACKAGE): name for name in entry_points.runnable()}
    near = names.get(nearest(module.removeprefix(PACKAGE), names, SIMILAR), "")
    seen = entry_points.releases_of(module)
    is_published = has_published_image(deployment, component.name)
    level = None if is_published else Level.NOTE
    if seen is None and module.split(".")[1] not in entry_points.packages():
        # No release of 0.5 and older is sure to have had no such package.
        found = [Absence(versions=SINCE_0_6)]
        level = None if near else Level.WARNING
    elif seen is None:
        found = [Absence(versions=EVERY_RELEASE)]
    else:
        found = list(outside(seen, is_parsed=True))
    for absence in found:
        yield RuleResult(
            location=Location(component.name, "args", (module,)),
            message=f"Dynamo has no module {module} to run{absence.since}",
            fix=_other_module(module, near),
            level=level,
            versions=absent_in(deployment, component.name, absence.versions),
        )


def _other_module(module: str, near: str) -> Fix:
    package = ".".join(module.split(".")[:2])
    if module.count(".") > 1 and package in entry_points.runnable():
        return Fix(text=f"Use {package}, or remove the command if nothing needs it.")
    return Fix(
        text=f"Use {near}."
        if near
        else "Remove the component, or run a module that the release of the image has."
    )


def lost_arguments(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for container in deployment.pods[component.name].containers:
            words = [*container.command, *container.arguments]
            lost = _after_script(words)
            is_default = container.has_default_shell
            if not lost or (is_default and (_is_before_0_5(lost) or words[2].startswith("--"))):
                continue  # for an option of the default shell see PS769
            of = "/bin/sh -c, the operator's default command," if is_default else "-c"
            yield RuleResult(
                location=Location(component.name, "args", (lost[0],)),
                message=f"the script of {of} does not use the arguments after it: {' '.join(lost)}",
                fix=_use_arguments(words, is_written=not is_default),
                why=_without_arguments(words[2].strip()),
                versions=DEFAULT_SHELL if is_default else _one_script(deployment, component, lost),
            )
    for component, launch in _launches(deployment):
        for word in launch.arguments if not launch.shell else ():
            if TWO_FLAGS.match(word):
                yield RuleResult(
                    location=Location(component.name, "args", (word.partition("=")[0],)),
                    message=f"{word!r} is a single argument; no shell splits it",
                    fix=Fix(text="Write each flag and each value as its own entry."),
                    why="The program takes the whole text as one flag and rejects it.",
                )


def _one_script(
    deployment: ServingDeployment, component: Component, words: list[str]
) -> Versions | None:
    """For SGLang on several nodes, operators before 0.5.1 joined the args into one script."""
    is_multinode = deployment.pods[component.name].nodes > 1
    is_sglang = any(word.startswith("dynamo.sglang") for word in words)
    return SINCE_0_6 if is_multinode and is_sglang else None


def _without_arguments(script: str) -> str:
    """What happens to the container of a script that gets no arguments."""
    if script.startswith("-"):
        return f"The shell takes {script} as its own option and exits: nothing names a program."
    if script.rsplit("/", 1)[-1] in INTERPRETERS:
        return (
            f"{script} starts without a program to run. As the container has no standard input, it "
            "exits at once and is restarted in a loop."
        )
    return "The script runs without these arguments, so the program uses its defaults."


def _use_arguments(words: list[str], *, is_written: bool) -> Fix:
    """A script of one word is the program, whose arguments follow."""
    if not is_written:
        return Fix(text=f"Move {words[2]} from args to command.")
    if words[2].startswith("-"):
        return Fix(
            text=f"Replace `{' '.join(words[:2])}` with the program, such as `python3 -m "
            "dynamo.vllm`."
        )
    if len(words[2].split()) > 1:
        return Fix(text="Move the arguments into the script.")
    shell, program = " ".join(words[:2]), words[2].strip()
    return Fix(text=f"Replace `{shell}` with {program} in command, so that it gets the arguments.")


def _has_command(deployment: ServingDeployment, component: Component) -> bool:
    containers = deployment.pods[component.name].containers
    return not containers[0].cursor["command"].is_absent


def _is_before_0_5(words: list[str]) -> bool:
    """Whether the words start no module of Dynamo 0.5 or later, such as `dynamo serve`."""
    modules = [word for flag, word in pairwise(words) if flag == "-m"]
    names = entry_points.packages()
    return not any(m.startswith("dynamo.") and m[len("dynamo.") :] in names for m in modules)


def _options_of_shell(deployment: ServingDeployment, component: Component) -> tuple[str, ...]:
    """The first of the args that the operator gives to `/bin/sh -c`, if it is an option."""
    main = deployment.pods[component.name].containers[0]
    if main.has_default_shell:
        return tuple(word for word in main.arguments[:1] if word.startswith("--"))
    return ()


def _after_script(words: list[str]) -> list[str]:
    """Flags after `bash -c SCRIPT` that the script does not use."""
    if len(words) < 4 or words[0].rsplit("/", 1)[-1] not in SHELLS or words[1] not in SCRIPT:
        return []
    uses = POSITIONAL.search(words[2])
    return words[3:] if not uses and any(word.startswith("-") for word in words[3:]) else []


def _launches(deployment: ServingDeployment) -> Iterator[tuple[Component, Launch]]:
    for component in deployment.components:
        for launch in component.launches:
            yield component, launch


def unknown_engine(deployment: ServingDeployment) -> Iterable[RuleResult]:
    known = {worker.name for worker in deployment.workers}
    for component in deployment.components:
        if component.role in WORKERS and component.name not in known:
            runs = [" ".join(launch.argv[:3]) for launch in component.launches]
            program = f"runs {', '.join(runs)}" if runs else "runs its image's entrypoint"
            yield RuleResult(
                location=Location(component.name, "field", ("main",)),
                message=f"{component.name} {program}, which is not a known engine",
                fix=Fix(text="Write the whole command, such as `python3 -m dynamo.vllm …`."),
            )


def model_name_too_long(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component, launch in _launches(deployment):
        for flag in ("--model", "--model-path", "--model-name", "--served-model-name"):
            name = flags.flag_value(launch.arguments, flag) or ""
            longest = max(len(part.encode()) for part in name.split("/"))
            if longest > NAME_MAX:
                yield RuleResult(
                    location=Location(component.name, "args", (flag,)),
                    message=f"{flag} has a part of {longest} bytes: {name[:40]}…",
                    fix=Fix(text="Use the id of the model on its hub, or its folder in the cache."),
                )
