"""Commands of containers: scripts of shells, and the modules of Dynamo that they run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.checks.absence import EVERY_RELEASE, Absence, outside
from penstock.checks.version_range import Versions
from penstock.engines import flag_history
from penstock.manifests.pods import Pod
from penstock.text.names import nearest

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
