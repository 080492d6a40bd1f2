"""Shell builtins, as far as they affect what a script starts."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.manifests.shell import conditions
from penstock.manifests.shell.flow import Break, Continue, Exit, Outcome, Return
from penstock.manifests.shell.text import Text, UnknownError, certain
from penstock.manifests.shell.words import Expander

Builtin = Callable[[list[Text], Expander], Outcome]
DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})


def declare(
    name: str, words: list[str], expander: Expander, assign: Callable[[str, Expander], str]
) -> Outcome:
    """`export A=1 B`, `declare -x`, `local`, `readonly`: assignments without word splitting."""
    scope = expander.scope
    exports, removes = name == "export", False
    for word in words:
        if re.fullmatch(r"[-+][A-Za-z]+", word):
            if word[0] == "-" and "p" in word:
                return Outcome(True)
            removes = removes or (name == "export" and word == "-n")
            exports = exports or (word[0] == "-" and "x" in word)
            if re.search("[Aniu]", word) and name != "export":
                raise UnknownError(f"`{name} {word}` is not supported")
            continue
        if match := re.match(r"([A-Za-z_]\w*)(\[[^]]*\])?\+?=", word):
            if name != "export":
                scope.make_local(match.group(1))
            variables = [assign(word, expander)]
        else:
            variables = [certain(field) for field in expander.fields(word)]
            _declare_bare(variables, name, expander)
        if removes:
            scope.exported.difference_update(variables)
        elif exports:
            scope.exported.update(variables)
    return Outcome(True)


def _declare_bare(variables: list[str], name: str, expander: Expander) -> None:
    for variable in variables:
        if name == "local":
            expander.scope.make_local(variable)
            expander.scope.remove(variable)
        elif name in ("declare", "typeset") and not expander.scope.is_declared(variable):
            expander.scope.assign(variable, ())


def condition(name: str, words: list[str], expander: Expander) -> Outcome:
    if name == "[":
        words = words[:-1]
    shown = " ".join([name, *words, *(["]"] if name == "[" else [])])
    try:
        return Outcome(conditions.test(words, expander))
    except UnknownError:
        return Outcome(None, question=f"`{shown}`")


def _nothing(arguments: list[Text], expander: Expander) -> Outcome:
    return Outcome(True)


def _false(arguments: list[Text], expander: Expander) -> Outcome:
    return Outcome(False)


def _exit(arguments: list[Text], expander: Expander) -> Outcome:
    raise Exit(_status(arguments))


def _return(arguments: list[Text], expander: Expander) -> Outcome:
    raise Return


def _break(arguments: list[Text], expander: Expander) -> Outcome:
    raise Break


def _continue(arguments: list[Text], expander: Expander) -> Outcome:
    raise Continue


def _status(arguments: list[Text]) -> bool | None:
    if not arguments or not arguments[0].is_known:
        return None
    return str(arguments[0]) == "0"


def _cd(arguments: list[Text], expander: Expander) -> Outcome:
    scope = expander.scope
    targets = [a for a in arguments if str(a) not in ("-L", "-P", "--")]
    target = targets[0] if targets else Text.unknown("~", "~: the home directory of the image")
    if target.is_known and str(target) != "-":
        path = scope.path(str(target))
        spelled = Text.unknown(str(target), f"{target}: relative to the image's working directory")
        scope.cwd = Text.known(path) if path else spelled
    else:
        scope.cwd = Text.unknown(str(target), f"cd {target}: known only on the cluster")
    return Outcome(True)


def _set(arguments: list[Text], expander: Expander) -> Outcome:
    """`set -- words` and `set -a`; other options do not change what is started."""
    scope = expander.scope
    for index, argument in enumerate(arguments):
        text = str(argument)
        if text == "--":
            scope.positional = tuple(arguments[index + 1 :])
            break
        if text[:1] in "-+" and text[1:].isalpha():
            if "a" in text:
                scope.exports_all = text[0] == "-"
            if "o" in text:
                break
        else:
            scope.positional = tuple(arguments[index:])
            break
    return Outcome(True)


def _shift(arguments: list[Text], expander: Expander) -> Outcome:
    count = int(certain(arguments[0])) if arguments else 1
    expander.scope.positional = expander.scope.positional[count:]
    return Outcome(True)


def _unset(arguments: list[Text], expander: Expander) -> Outcome:
    for argument in arguments:
        name = certain(argument)
        if name == "-f":
            return Outcome(True)
        if not name.startswith("-"):
            expander.scope.remove(name)
    return Outcome(True)


def _read(arguments: list[Text], expander: Expander) -> Outcome:
    """`read`: only the cluster knows the variables from here on."""
    for argument in arguments:
        name = str(argument)
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            expander.scope.forget(name, "read while the script runs")
    return Outcome(True)


def let(words: list[str], expander: Expander) -> Outcome:
    """`let`: its words are arithmetic, so `i=i*2` is not a file pattern."""
    value = 0
    for word in words:
        value = expander.number(certain(expander.single(word)))
    return Outcome(value != 0)


def _question(name: str) -> Builtin:
    def ask(arguments: list[Text], expander: Expander) -> Outcome:
        shown = " ".join([name, *(str(argument) for argument in arguments)])
        return Outcome(None, question=f"`{shown}`")

    return ask


TABLE: dict[str, Builtin] = {
    **dict.fromkeys(
        (":", "true", "ulimit", "umask", "trap", "wait", "shopt", "sleep", "hash", "alias"),
        _nothing,
    ),
    "false": _false,
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _continue,
    "cd": _cd,
    "pushd": _cd,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
    "read": _read,
    "mapfile": _read,
    "readarray": _read,
    **{name: _question(name) for name in ("type", "which", "grep", "pgrep", "diff", "cmp", "kill")},
}
