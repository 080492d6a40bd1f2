"""One simple command: assignments, redirections, then a builtin, a function or a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.manifests.shell import builtins, programs
from penstock.manifests.shell.flow import Outcome, Return
from penstock.manifests.shell.lex import Token, tokens
from penstock.manifests.shell.process import Candidate, How
from penstock.manifests.shell.scope import Scope
from penstock.manifests.shell.substitutions import printf, substitute
from penstock.manifests.shell.syntax import Heredoc
from penstock.manifests.shell.text import Text, UnknownError, Value
from penstock.manifests.shell.words import Expander

if TYPE_CHECKING:
    from penstock.manifests.shell.run import Run

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[([^]]*)\])?(\+?)=(.*)", re.DOTALL)
_WRITES = (">", ">|", ">>", "&>", "&>>", "1>", "1>>")
_MOST_CALLS = 50


@dataclass
class Command:
    """A simple command in parts; ``reads`` is what comes on its standard input, if known."""

    assignments: list[str]
    words: list[str]
    writes: list[tuple[str, str]]  # operator, path
    reads: Text | None = None


def simple(
    run: Run,
    text: str,
    heredocs: tuple[Heredoc, ...],
    scope: Scope,
    *,
    stdin: Text | None = None,
) -> Outcome:
    """Follow a simple command; several where tree-sitter joined lines that bash does not."""
    outcome = Outcome(True)
    for part in _lines(text):
        expander = Expander(scope, substitute)
        command = _command(part, expander)
        if heredocs:
            last = heredocs[-1]
            stdin = expander.document(last.body) if last.expands else Text.known(last.body)
        if command.reads is None:
            command.reads = stdin
        outcome = _follow(run, command, expander)
    return outcome


def _lines(text: str) -> Iterator[list[Token]]:
    found: list[Token] = []
    for token in tokens(text):
        if token.kind == "newline" or token.text == ";":
            if found:
                yield found
            found = []
        else:
            found.append(token)
    if found:
        yield found


def _command(parts: list[Token], expander: Expander) -> Command:
    command = Command([], [], [])
    following = iter(parts)
    for token in following:
        if token.kind == "redirect":
            _redirect(token.text, next(following, None), command, expander)
        elif token.kind == "operator":
            raise UnknownError(f"`{token.text}` in a command")
        elif not command.words and ASSIGNMENT.fullmatch(token.text):
            command.assignments.append(token.text)
        else:
            command.words.append(token.text)
    return command


def _redirect(operator: str, target: Token | None, command: Command, expander: Expander) -> None:
    if target is None:
        raise UnknownError(f"`{operator}` without a target")
    if operator in _WRITES:
        command.writes.append((operator, target.text))
    elif operator == "<<<":
        command.reads = expander.single(target.text) + Text.known("\n")
    elif operator == "<":
        path = expander.single(target.text)
        at = expander.scope.path(str(path)) if path.is_known else None
        command.reads = expander.scope.files.get(at) if at else None


def _follow(run: Run, command: Command, expander: Expander) -> Outcome:
    scope = expander.scope
    if not command.words:
        return _assign_all(command, expander)
    name = _plain_name(command.words[0], expander)
    if name in builtins.DECLARATIONS:
        return builtins.declare(name, command.words[1:], expander, assign)
    if name == "let":
        return builtins.let(command.words[1:], expander)
    if name in ("[", "test"):
        return builtins.condition(name, command.words[1:], expander)
    fields = [field for word in command.words for field in expander.fields(word)]
    if not fields:
        return _assign_all(command, expander)
    temporary = _temporary(command.assignments, expander)
    return dispatch(run, fields, command, scope, temporary)


def _plain_name(word: str, expander: Expander) -> str:
    fields = expander.fields(word)
    return str(fields[0]) if fields and fields[0].is_known else ""


def _assign_all(command: Command, expander: Expander) -> Outcome:
    names = [assign(text, expander) for text in command.assignments]
    _write(command, Text(), expander)
    # `x=$(cmd)` succeeds when cmd does.
    is_sure = all(_as_text(expander.scope.values[name]).is_known for name in names)
    return Outcome(True if is_sure else None)


def assign(text: str, expander: Expander) -> str:
    """Carry out `name=value`, `name+=value`, `name[i]=value`, `name=(…)`; returns the name."""
    match = ASSIGNMENT.fullmatch(text)
    if match is None:
        raise UnknownError(f"the assignment {text}")
    name, subscript, index, plus, word = match.groups()
    if subscript is not None:
        expander.scope.assign_item(name, expander.number(index), expander.single(word))
    else:
        expander.scope.assign(name, value_of(word, expander), append=bool(plus))
    return name


def value_of(word: str, expander: Expander) -> Value:
    if not word.startswith("("):
        return expander.single(word)
    found: list[Text] = []
    for token in tokens(word[1:-1]):
        if token.kind == "newline":
            continue
        if token.kind != "word" or re.match(r"\[[^]]*\]=", token.text):
            raise UnknownError(f"the array {word}")
        found += expander.fields(token.text)
    return tuple(found)


def _temporary(assignments: list[str], expander: Expander) -> dict[str, Text]:
    """`A=1 B=2 command`: variables of the command alone."""
    inner = Expander(expander.scope.copy(), expander.substitute)
    names = [assign(text, inner) for text in assignments]
    return {name: _as_text(inner.scope.values[name]) for name in names}


def _as_text(value: Value) -> Text:
    return value if isinstance(value, Text) else Text.join(value, " ")


def dispatch(
    run: Run, fields: list[Text], command: Command, scope: Scope, temporary: dict[str, Text]
) -> Outcome:
    """Run ``fields`` as a function, a builtin or a program."""
    expander = Expander(scope, substitute)
    name = str(fields[0]) if fields[0].is_known else ""
    if name in scope.functions:
        return _call(run, name, fields[1:], scope, temporary)
    builtin: Callable[..., Outcome] | None = builtins.TABLE.get(name)
    if builtin is not None:
        return builtin(fields[1:], expander)
    if name == "printf" and len(fields) > 2 and str(fields[1]) == "-v":
        return _printf_to(fields[2:], scope)
    if name in programs.SPECIAL:
        return programs.SPECIAL[name](run, fields, command, scope, temporary)
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
    held = scope.positional
    scope.positional = tuple(arguments)
    scope.frames.append({})
    for variable, value in temporary.items():
        scope.assign(variable, value)
    run.depth += 1
    try:
        if run.depth > _MOST_CALLS:
            raise UnknownError(f"the function {name} calls itself too often")
        return run.statement(scope.functions[name], scope)
    except Return:
        return Outcome(None)
    finally:
        run.depth -= 1
        scope.positional = held
        scope.restore_locals()


def _write(command: Command, output: Text | None, expander: Expander, program: str = "") -> None:
    """What a redirection leaves in a file; unknown where the output is."""
    for operator, word in command.writes:
        path = expander.single(word)
        if not path.is_known or str(path).startswith("/dev/"):
            continue
        if output is None:
            at = expander.scope.path(str(path))
            expander.scope.lose(str(path), f"{at}: the output of {program}")
        else:
            expander.scope.write(str(path), output, append=operator.endswith(">>"))


def in_background(candidates: list[Candidate], start: int) -> None:
    for index in range(start, len(candidates)):
        candidates[index] = replace(candidates[index], how=How.BACKGROUND)


def add_note(candidates: list[Candidate], start: int, note: str) -> None:
    for index in range(start, len(candidates)):
        held = candidates[index]
        if note not in held.notes:
            candidates[index] = replace(held, notes=(*held.notes, note))
