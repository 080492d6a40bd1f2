"""Components: their names, types, roles and GPUs, and the commands of their containers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from packaging.version import Version

from penstock.checks.version_range import EVERY_RELEASE, Absence, Versions, outside
from penstock.engines import flag_history
from penstock.engines.releases import RELEASES
from penstock.manifests.deployment import Component, Engine, Role
from penstock.manifests.pods import TYPES, V1ALPHA1, Pod
from penstock.manifests.roles import configured_role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version, possible_releases
from penstock.serving.worker import Worker
from penstock.text.names import KEY_CUTOFF, nearest

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OWN_ROLES = ("encode", "encoder")  # similar to `decode`, with another meaning


def is_name(text: str) -> bool:
    """Whether Kubernetes takes it as the name of a Service."""
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def similar_type(kind: str, known: Iterable[str]) -> str:
    """The type of a component that was probably meant; empty if none is similar."""
    return "" if kind in _OWN_ROLES else nearest(kind, known, KEY_CUTOFF)


def is_unknown_type(deployment: ServingDeployment, pod: Pod) -> bool:
    """Whether the component of v1alpha1, which accepts any text, has a type that the operator does
    not know."""
    # The types of v1beta1, the operator's name for a component without a type
    # (ComponentTypeDefault in consts.go), and `main`: the comment of the field has this example,
    # and old recipes use it.
    known = ("", *TYPES, "default", "main")
    return deployment.api_version == V1ALPHA1 and (pod.kind or "") not in known


def commanded_role(worker: Worker) -> Role | None:
    """The role that the command or the engine's configuration states."""
    component = worker.component
    return configured_role(worker.launch, component.engine, component.engine_config)


def lacks_partner(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether prefill workers wait for this decode worker, which registers as aggregated."""
    prefill = deployment.pool(Role.PREFILL) if worker.role is Role.DECODE else ()
    return any(commanded_role(other) is Role.PREFILL for other in prefill)


def mode_arguments(deployment: ServingDeployment, worker: Worker) -> tuple[str, ...]:
    """The arguments that set the role. vLLM's worker has --disaggregation-mode since 1.0."""
    if worker.engine is Engine.VLLM and worker.role is Role.PREFILL:
        newest = RELEASES[possible_releases(deployment)[-1]].dynamo
        if (dynamo_version(worker.pod) or Version(newest).release[:2]) < (1, 0):
            return ("--is-prefill-worker",)
    return ("--disaggregation-mode", str(worker.role))


def gets_gpus_by_claims_only(component: Component, pod: Pod) -> bool:
    """Whether it has GPUs, and none of them is a resource of a container."""
    if not component.gpus or pod.claims.is_absent:
        return False
    resources = [pod.resources, *(c.cursor["resources"] for c in pod.containers)]
    amounts = [r[side] for r in resources for side in ("limits", "requests")]
    return not any("gpu" in key for amount in amounts for key, _ in amount.entries())


def extra_clients(pod: Pod) -> Mapping[str, int]:
    """The containers that share the GPU memory service, and how often each is named."""
    names = pod.cursor["experimental"]["gpuMemoryService"]["extraClientContainers"].value
    return Counter(map(str, names if isinstance(names, list) else ()))


_DYNAMO = "dynamo."
_SIMILAR = 0.75  # of a suggested module
_SHELLS = ("sh", "bash", "dash", "zsh", "ash")
_SCRIPT = ("-c", "-lc", "-ec", "-xc", "-euc", "-exc")
_INTERPRETERS = (*_SHELLS, "python", "python3", "node", "perl")
_POSITIONAL = re.compile(r"\$\{?[@*0-9]|\b(shift|getopts)\b|\bfor\s+\w+\s*(;|\n|do\b)")
_TWO_FLAGS = re.compile(r"--[\w.-]+[= ]\S* --\w")


def option_as_script(pod: Pod) -> str | None:
    """The first of the args, if the operator gives it to `/bin/sh -c` and it is an option."""
    main = pod.containers[0]
    first = next(iter(main.arguments), "") if main.has_default_shell else ""
    return first if first.startswith("--") else None


def words_after_script(words: Sequence[str]) -> Sequence[str]:
    """What follows `bash -c SCRIPT`, if it has flags and the script does not use it."""
    if len(words) < 4 or words[0].rsplit("/", 1)[-1] not in _SHELLS or words[1] not in _SCRIPT:
        return ()
    is_used = _POSITIONAL.search(words[2]) or not any(w.startswith("-") for w in words[3:])
    return () if is_used else words[3:]


def without_arguments(script: str) -> str:
    """What happens to the container of a script that gets no arguments."""
    if script.startswith("-"):
        return f"The shell takes {script} as its own option and exits: nothing names a program."
    if script.rsplit("/", 1)[-1] in _INTERPRETERS:
        return (
            f"{script} starts without a program to run. As the container has no standard input, it "
            "exits at once and is restarted in a loop."
        )
    return "The script runs without these arguments, so the program uses its defaults."


def has_two_flags(word: str) -> bool:
    """Whether one argument has the text of several: `--tp 2 --pp`."""
    return _TWO_FLAGS.match(word) is not None


def runs_known_module(words: Sequence[str]) -> bool:
    """Whether the words start a module of Dynamo 0.5 or later, unlike `dynamo serve`."""
    modules = (word for flag, word in pairwise(words) if flag == "-m")
    known = flag_history.packages()
    return any(m.startswith(_DYNAMO) and m.removeprefix(_DYNAMO) in known for m in modules)


def absences_of(module: str | None) -> Iterator[Absence]:
    """The releases of Dynamo that cannot run a module below `dynamo`."""
    package = (module or "").split(".")[1:2]
    if not module or not module.startswith(_DYNAMO) or package[0] in flag_history.OF_RUNTIME:
        return
    seen = flag_history.releases_of(module)
    if seen is not None:
        yield from outside(seen, is_parsed=True)
    elif package[0] in flag_history.packages():
        yield Absence(versions=EVERY_RELEASE)
    else:
        # No release of 0.5 and older is sure to have had no such package.
        yield Absence(versions=Versions(dynamo=">=0.6"))


def similar_module(module: str) -> str:
    """The module that was probably meant; empty if none is similar."""
    # By the part after `dynamo.`, so that only a typing error is corrected.
    names = {name.removeprefix(_DYNAMO): name for name in flag_history.runnable()}
    return names.get(nearest(module.removeprefix(_DYNAMO), names, _SIMILAR), "")
