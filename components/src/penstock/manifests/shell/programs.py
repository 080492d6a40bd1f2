"""Programs: wrappers that start others, tools that write files, and processes to start."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.manifests.shell import scope as scopes
from penstock.manifests.shell.process import How, candidate
from penstock.manifests.shell.scope import Outcome, Replaced, Scope
from penstock.manifests.shell.substitutions import run_pure
from penstock.manifests.shell.text import Text, UnknownError, certain

if TYPE_CHECKING:
    from penstock.manifests.shell.run import Run

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


def is_shell(argv: Sequence[str]) -> bool:
    return bool(argv) and posixpath.basename(argv[0]) in _SHELLS


def shell_script(argv: list[str], files: dict[str, str]) -> tuple[str, str, list[str], bool] | None:
    """Script, `$0`, arguments, and whether it is bash; None if the script is not available."""
    if not argv:
        return None
    if not is_shell(argv):
        return _file_script(argv, files)
    is_bash = posixpath.basename(argv[0]) in ("bash", "zsh", "ksh")
    index = 1
    takes_script = False
    while index < len(argv) and argv[index][:1] in "-+" and argv[index] not in ("-", "--"):
        option = argv[index]
        takes_script = takes_script or (not option.startswith("--") and "c" in option)
        index += 2 if option in ("-o", "+o", "-O", "--rcfile", "--init-file") else 1
    if index < len(argv) and argv[index] == "--":
        index += 1
    if index >= len(argv):
        return None
    if takes_script:
        rest = argv[index + 1 :]
        return argv[index], rest[0] if rest else argv[0], rest[1:], is_bash
    text = files.get(argv[index])
    return (text, argv[index], argv[index + 1 :], is_bash) if text is not None else None


def _file_script(argv: list[str], files: dict[str, str]) -> tuple[str, str, list[str], bool] | None:
    """A script from a ConfigMap that is started by its path."""
    text = files.get(argv[0])
    match = re.match(r"#!\s*(?:/usr/bin/env\s+)?\S*?(\w+)\s*\n", text or "")
    if text is None or match is None or match.group(1) not in _SHELLS:
        return None
    return text, argv[0], argv[1:], match.group(1) == "bash"


Temporary = dict[str, Text]
_CHANGERS = frozenset(
    {"sed", "rm", "mv", "truncate", "perl", "yq", "awk", "patch", "python3", "python", "envsubst"}
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def program(
    run: Run, fields: list[Text], reads: Text | None, scope: Scope, temporary: Temporary
) -> Outcome:
    """Follow a command that is not a builtin: unwrap it, then start it or use its output."""
    fields, inner, wrapped = _unwrapped(fields, _with(scope, temporary))
    if not fields:
        return Outcome(True)
    if wrapped == "command -v":
        command_line = " ".join(str(field) for field in fields)
        return Outcome(None, question=f"`command -v {command_line}`")
    if wrapped and str(fields[0]) in scope.functions:
        raise UnknownError(f"a function after `{wrapped}` is not supported")
    output = _output(fields, reads, inner)
    if output is not None or str(fields[0]) in ("echo", "printf"):
        return Outcome(True, output=output)
    _change_files(fields, reads, scope)
    if follow_shell(run, fields, inner):
        return Outcome(None)
    run.add(candidate(fields, inner, How.FOREGROUND))
    return Outcome(None)


def _with(scope: Scope, temporary: Temporary) -> Scope:
    inner = scope.copy(shares_files=True)
    for name, text in temporary.items():
        inner.assign(name, text)
        inner.exported.add(name)
    return inner


def _unwrapped(fields: list[Text], scope: Scope) -> tuple[list[Text], Scope, str]:
    """`env A=1 cmd`, `nohup cmd`, `command cmd`, `setsid cmd`, `time cmd`: the process is `cmd`."""
    wrapped = ""
    while fields:
        name = posixpath.basename(str(fields[0])) if fields[0].is_known else ""
        if name == "env":
            fields = _env(fields[1:], scope)
        elif name == "command" and len(fields) > 1 and str(fields[1]) in ("-v", "-V"):
            return fields[2:], scope, "command -v"
        elif name in ("nohup", "setsid", "command", "builtin", "time"):
            fields = fields[1:]
            while fields and str(fields[0]).startswith("-"):
                fields = fields[1:]
        else:
            break
        wrapped = name
    return fields, scope, wrapped


def _env(fields: list[Text], scope: Scope) -> list[Text]:
    takes_options = True
    while fields:
        text = str(fields[0])
        match = _ASSIGNED.fullmatch(text)
        if not match and (not takes_options or not text.startswith("-")):
            return fields
        if text in ("-i", "-", "--ignore-environment"):
            scope.exported.clear()
        elif text in ("-u", "--unset") and len(fields) > 1:
            scope.remove(certain(fields[1]))
            fields = fields[1:]
        elif text.startswith("--unset="):
            scope.remove(text.partition("=")[2])
        elif match:
            scope.assign(match.group(1), _behind_equals(fields[0]))
            scope.exported.add(match.group(1))
            takes_options = False
        elif text != "--":
            raise UnknownError(f"`env {text}` is not supported")
        fields = fields[1:]
    return fields


def _behind_equals(field: Text) -> Text:
    first, *rest = field.pieces
    if "=" not in first.text:
        raise UnknownError(f"`env {field}` is not supported")
    return Text((type(first)(first.text.partition("=")[2], first.why), *rest))


def _output(fields: list[Text], reads: Text | None, scope: Scope) -> Text | None:
    """The output, if the arguments or a known standard input determine it."""
    name = str(fields[0])
    if name == "cat" and (len(fields) == 1 or str(fields[1]) == "-"):
        return reads
    if name == "tee" and reads is not None:
        is_append = any(str(field) in ("-a", "--append") for field in fields)
        for path in fields[1:]:
            if not str(path).startswith(("-", "/dev/")):
                scope.write(certain(path), reads, append=is_append)
        return reads
    try:
        return run_pure(fields, scope)
    except UnknownError:
        return None


def _change_files(fields: list[Text], reads: Text | None, scope: Scope) -> None:
    name, arguments = posixpath.basename(str(fields[0])), [str(f) for f in fields[1:]]
    paths = [argument for argument in arguments if not argument.startswith("-")]
    if name == "cp" and len(paths) == 2:
        _copy(paths[0], paths[1], scope)
    elif name == "tee":
        for path in paths:
            scope.lose(path, "written by tee from a command's output")
    elif name in _CHANGERS:
        for path in paths:
            if scope.path(path) in scope.files and _writes(name, arguments):
                scope.lose(path, f"changed by {name}")
    if name in ("mv", "cp") and paths:
        target = scope.path(paths[-1])
        if name == "mv" and target:
            scope.lose(target, "moved there by mv")


def _writes(name: str, arguments: list[str]) -> bool:
    """Whether the tool writes the file: sed, perl, yq and awk do so only in place (`-i`)."""
    if name in ("sed", "perl", "yq", "awk"):
        return any(a.startswith(("-i", "--in")) for a in arguments)
    return name not in ("python3", "python", "envsubst") or "-m" not in arguments


def _copy(source: str, target: str, scope: Scope) -> None:
    at = scope.path(source)
    if target.endswith("/"):
        target = posixpath.join(target, posixpath.basename(source))
    if at in scope.files:
        scope.write(target, scope.files[at], append=False)
    else:
        scope.lose(target, f"a copy of {source}")


def follow_shell(run: Run, fields: list[Text], scope: Scope) -> bool:
    """Follow `bash -c SCRIPT args` and `bash FILE args`; False if the script is not available."""
    started = shell_script([str(f) for f in fields], {p: str(t) for p, t in scope.files.items()})
    if started is None or not all(field.is_known for field in fields):
        return False
    script, program_name, arguments, is_bash = started
    inner = scopes.Scope(
        values={n: v for n, v in scope.values.items() if n in scope.exported},
        exported=set(scope.exported),
        unknown=dict(scope.unknown),
        unset=scope.unset | (set(scope.values) - scope.exported),
        positional=tuple(Text.known(argument) for argument in arguments),
        program=Text.known(program_name),
        files=scope.files,
        lost=scope.lost,
        cwd=scope.cwd,
        notes=scope.notes,
        is_conditional=scope.is_conditional,
        is_bash=is_bash,
    )
    run.script(script, inner)
    return True


def _exec(run: Run, fields: list[Text], scope: Scope, temporary: Temporary) -> Outcome:
    rest = fields[1:]
    inner = _with(scope, temporary)
    while rest and str(rest[0]).startswith("-"):
        if str(rest[0]) == "-c":
            inner.exported.clear()
        rest = rest[2:] if str(rest[0]) == "-a" else rest[1:]
    if not rest:
        return Outcome(True)  # only redirections
    rest, inner, _ = _unwrapped(rest, inner)
    if not follow_shell(run, rest, inner):
        run.add(candidate(rest, inner, How.EXEC))
    raise Replaced


def _eval(run: Run, fields: list[Text], scope: Scope, temporary: Temporary) -> Outcome:
    text = " ".join(certain(field) for field in fields[1:])
    return run.text(text, scope)


def _source(run: Run, fields: list[Text], scope: Scope, temporary: Temporary) -> Outcome:
    """Follow `source FILE`; a file of the image may set any variable."""
    path = scope.path(certain(fields[1])) if len(fields) > 1 else None
    text = scope.files.get(path) if path else None
    if text is not None and text.is_known:
        return run.text(str(text), scope)
    command_line = " ".join(str(field) for field in fields)
    scope.note(f"`{command_line}`: the script is in the image")
    return Outcome(None)


SPECIAL: dict[str, Callable[[Run, list[Text], Scope, Temporary], Outcome]] = {
    "exec": _exec,
    "eval": _eval,
    ".": _source,
    "source": _source,
}
