"""A simple command: assignments, redirections, then a builtin, a function or a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.manifests.shell import conditions, programs
from penstock.manifests.shell.lex import Token, words
from penstock.manifests.shell.process import Candidate
from penstock.manifests.shell.scope import Break, Continue, Exit, Leave, Outcome, Return, Scope
from penstock.manifests.shell.substitutions import printf, substitute
from penstock.manifests.shell.text import Text, UnknownError, Value, as_text, certain
from penstock.manifests.shell.words import Expander

if TYPE_CHECKING:
    from penstock.manifests.shell.run import Run

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
    text = " ".join([name, *words, *(["]"] if name == "[" else [])])
    try:
        return Outcome(conditions.test(words, expander))
    except UnknownError:
        return Outcome(None, question=f"`{text}`")


def _ends_with(status: bool) -> Builtin:
    return lambda arguments, expander: Outcome(status)


def _leaves(kind: type[Leave]) -> Builtin:
    def leave(arguments: list[Text], expander: Expander) -> Outcome:
        raise kind

    return leave


def _exit(arguments: list[Text], expander: Expander) -> Outcome:
    is_known = bool(arguments) and arguments[0].is_known
    raise Exit(str(arguments[0]) == "0" if is_known else None)


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
    number = 0
    for word in words:
        number = expander.number(certain(expander.single(word)))
    return Outcome(number != 0)


def _question(name: str) -> Builtin:
    def ask(arguments: list[Text], expander: Expander) -> Outcome:
        command = " ".join([name, *(str(argument) for argument in arguments)])
        return Outcome(None, question=f"`{command}`")

    return ask


TABLE: dict[str, Builtin] = {
    **dict.fromkeys(
        (":", "true", "ulimit", "umask", "trap", "wait", "shopt", "sleep", "hash", "alias"),
        _ends_with(True),
    ),
    "false": _ends_with(False),
    "exit": _exit,
    "return": _leaves(Return),
    "break": _leaves(Break),
    "continue": _leaves(Continue),
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


ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[([^]]*)\])?(\+?)=(.*)", re.DOTALL)
_WRITES = (">", ">|", ">>", "&>", "&>>", "1>", "1>>")
_MOST_CALLS = 50


@dataclass
class Command:
    """The parts of a simple command."""

    assignments: list[str]
    words: list[str]
    # (operator, path)
    writes: list[tuple[str, str]]
    # Its standard input, if known.
    reads: Text | None = None


def simple(
    run: Run, parts: tuple[Token, ...], scope: Scope, *, stdin: Text | None = None
) -> Outcome:
    """Follow a simple command."""
    expander = Expander(scope, substitute)
    command = _command(parts, expander)
    if command.reads is None:
        command.reads = stdin
    return _follow(run, command, expander)


def _command(parts: tuple[Token, ...], expander: Expander) -> Command:
    command = Command([], [], [])
    following = iter(parts)
    for token in following:
        if token.heredoc is not None:
            body = token.heredoc.body
            command.reads = expander.document(body) if token.heredoc.expands else Text.known(body)
        elif token.kind == "redirect":
            _redirect(token.text, next(following).text, command, expander)
        elif not command.words and ASSIGNMENT.fullmatch(token.text):
            command.assignments.append(token.text)
        else:
            command.words.append(token.text)
    return command


def redirect(parts: tuple[Token, ...], scope: Scope) -> None:
    """Note the files that the redirections of a block write; their content is unknown."""
    expander = Expander(scope, substitute)
    _write(_command(parts, expander), None, expander, "a block of commands")


def _redirect(operator: str, target: str, command: Command, expander: Expander) -> None:
    if operator in _WRITES:
        command.writes.append((operator, target))
    elif operator == "<<<":
        command.reads = expander.single(target) + Text.known("\n")
    elif operator == "<":
        path = expander.single(target)
        at = expander.scope.path(str(path)) if path.is_known else None
        command.reads = expander.scope.files.get(at) if at else None


def _follow(run: Run, command: Command, expander: Expander) -> Outcome:
    if not command.words:
        return _assign_all(command, expander)
    name = _plain_name(command.words[0], expander)
    if name in DECLARATIONS:
        return declare(name, command.words[1:], expander, assign)
    if name == "let":
        return let(command.words[1:], expander)
    if name in ("[", "test"):
        return condition(name, command.words[1:], expander)
    fields = [field for word in command.words for field in expander.fields(word)]
    if not fields:
        return _assign_all(command, expander)
    return _dispatch(run, fields, command, expander)


def _plain_name(word: str, expander: Expander) -> str:
    fields = expander.fields(word)
    return str(fields[0]) if fields and fields[0].is_known else ""


def _assign_all(command: Command, expander: Expander) -> Outcome:
    names = [assign(text, expander) for text in command.assignments]
    _write(command, Text(), expander)
    # `x=$(cmd)` succeeds if cmd does.
    is_sure = all(as_text(expander.scope.values[name]).is_known for name in names)
    return Outcome(True if is_sure else None)


def assign(text: str, expander: Expander) -> str:
    """Apply `name=value`, `name+=value`, `name[i]=value` or `name=(…)`; returns the name."""
    match = ASSIGNMENT.fullmatch(text)
    if match is None:
        raise UnknownError(f"the assignment {text} is not supported")
    name, subscript, index, plus, word = match.groups()
    if subscript is not None:
        expander.scope.assign_item(name, expander.number(index), expander.single(word))
    else:
        expander.scope.assign(name, value_of(word, expander), append=bool(plus))
    return name


def value_of(word: str, expander: Expander) -> Value:
    if not word.startswith("("):
        return expander.single(word)
    fields: list[Text] = []
    for item in words(word[1:-1]):
        if re.match(r"\[[^]]*\]=", item):
            raise UnknownError(f"the array {word} is not supported")
        fields += expander.fields(item)
    return tuple(fields)


def _temporary(assignments: list[str], expander: Expander) -> dict[str, Text]:
    """`A=1 B=2 command`: variables of this command only."""
    inner = Expander(expander.scope.copy(), expander.substitute)
    names = [assign(text, inner) for text in assignments]
    return {name: as_text(inner.scope.values[name]) for name in names}


def _dispatch(run: Run, fields: list[Text], command: Command, expander: Expander) -> Outcome:
    """Run ``fields`` as a function, a builtin or a program."""
    scope, temporary = expander.scope, _temporary(command.assignments, expander)
    name = str(fields[0]) if fields[0].is_known else ""
    if name in scope.functions:
        return _call(run, name, fields[1:], scope, temporary)
    builtin: Callable[..., Outcome] | None = TABLE.get(name)
    if builtin is not None:
        return builtin(fields[1:], expander)
    if name == "printf" and len(fields) > 2 and str(fields[1]) == "-v":
        return _printf_to(fields[2:], scope)
    if name in programs.SPECIAL:
        return programs.SPECIAL[name](run, fields, scope, temporary)
    outcome = programs.program(run, fields, command.reads, scope, temporary)
    _write(command, outcome.output, expander, str(fields[0]))
    return outcome


def _printf_to(fields: list[Text], scope: Scope) -> Outcome:
    """`printf -v name format …`"""
    name, text = str(fields[0]), printf(fields[1:])
    if text is None:
        scope.forget(name, "written by printf")
    else:
        scope.assign(name, text)
    return Outcome(True)


def _call(
    run: Run, name: str, arguments: list[Text], scope: Scope, temporary: dict[str, Text]
) -> Outcome:
    current = scope.positional
    scope.positional = tuple(arguments)
    scope.frames.append({})
    for variable, text in temporary.items():
        scope.assign(variable, text)
    run.depth += 1
    try:
        if run.depth > _MOST_CALLS:
            raise UnknownError(f"the function {name} recurses too deeply")
        return run.statement(scope.functions[name], scope)
    except Return:
        return Outcome(None)
    finally:
        run.depth -= 1
        scope.positional = current
        scope.restore_locals()


def _write(command: Command, output: Text | None, expander: Expander, program: str = "") -> None:
    """Write the output to the files of the redirections; None is an unknown output."""
    for operator, word in command.writes:
        path = expander.single(word)
        if not path.is_known or str(path).startswith("/dev/"):
            continue
        if output is None:
            expander.scope.lose(str(path), f"the output of {program}")
        else:
            expander.scope.write(str(path), output, append=operator.endswith(">>"))


def mark(candidates: list[Candidate], start: int, note: str = "", **changes: Any) -> None:
    """Change the processes from ``start`` on, and add a note to them."""
    for index in range(start, len(candidates)):
        current = candidates[index]
        notes = current.notes if note in ("", *current.notes) else (*current.notes, note)
        candidates[index] = replace(current, notes=notes, **changes)
