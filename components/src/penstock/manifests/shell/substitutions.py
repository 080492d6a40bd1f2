"""`$(…)` whose output the script determines: echo, printf, seq, cat of a known file, …"""

from __future__ import annotations

import posixpath
import re

from penstock.manifests.shell.lex import LexError, Token
from penstock.manifests.shell.scope import Scope
from penstock.manifests.shell.text import Text, UnknownError, certain
from penstock.manifests.shell.tree import Simple, parse
from penstock.manifests.shell.words import Expander


def substitute(script: str, spelling: str, scope: Scope) -> Text:
    """The output without its last newlines; a command that must run keeps its spelling."""
    try:
        output = _output(script, Expander(scope.copy(), substitute))
    except (UnknownError, LexError):
        output = None
    if output is None:
        return Text.unknown(spelling, f"{spelling}: the output of a command")
    return _strip_trailing_newlines(output)


def _strip_trailing_newlines(text: Text) -> Text:
    pieces = list(text.pieces)
    while pieces and not pieces[-1].why:
        stripped = pieces[-1].text.rstrip("\n")
        if stripped:
            pieces[-1] = type(pieces[-1])(stripped)
            break
        pieces.pop()
    return Text(tuple(pieces))


def _output(script: str, expander: Expander) -> Text | None:
    """The output of a simple command, which may have `<`, `<<<` or a here-document."""
    block = parse(script)
    only = block.statements[0] if len(block.statements) == 1 else None
    if not isinstance(only, Simple):
        return None
    argv = [f for part in only.parts if part.kind == "word" for f in expander.fields(part.text)]
    redirects = [part for part in only.parts if part.kind == "redirect"]
    if not redirects:
        return run_pure(argv, expander.scope)
    if len(redirects) > 1:
        return None
    return _redirected(only.parts, redirects[0], expander)


def _redirected(parts: tuple[Token, ...], redirect: Token, expander: Expander) -> Text | None:
    """`< file`, `cat < file`, `cat <<< text`, `cat <<EOF`"""
    words = [part.text for part in parts if part.kind == "word"]
    if redirect.heredoc is not None:
        body = redirect.heredoc.body
        text = expander.document(body) if redirect.heredoc.expands else Text.known(body)
        return text if words == ["cat"] else None
    target = parts[parts.index(redirect) + 1].text
    if redirect.text == "<<<":
        return expander.single(target) + Text.known("\n") if words == ["cat", target] else None
    if redirect.text == "<" and words in ([target], ["cat", target]):
        return _file(expander.single(target), expander.scope)
    return None


def run_pure(argv: list[Text], scope: Scope) -> Text | None:
    """The output of a command that reads only its arguments; None for any other."""
    if not argv:
        return Text()
    name, arguments = certain(argv[0]), argv[1:]
    if name == "echo":
        return echo(arguments, scope)
    if name == "printf":
        return printf(arguments)
    if name == "cat" and arguments:
        contents = [_file(argument, scope) for argument in arguments]
        return Text.join(c for c in contents if c) if all(c is not None for c in contents) else None
    if name == "pwd" and not arguments:
        return scope.cwd
    plain = [certain(argument) for argument in arguments]
    if name == "seq":
        return _seq(plain)
    if name == "basename" and plain:
        base = posixpath.basename(plain[0].rstrip("/"))
        return Text.known(base.removesuffix(plain[1]) if len(plain) > 1 else base)
    if name == "dirname" and len(plain) == 1:
        return Text.known(posixpath.dirname(plain[0]) or ".")
    return None


def _file(path: Text, scope: Scope) -> Text | None:
    at = scope.path(certain(path))
    return scope.files.get(at) if at else None


def echo(arguments: list[Text], scope: Scope) -> Text:
    """`echo`: bash keeps `\\n` without -e; dash (`sh`) always replaces it."""
    flags = ""
    while arguments and re.fullmatch(r"-[neE]+", str(arguments[0])):
        flags += str(arguments[0])[1:]
        arguments = arguments[1:]
    text = Text.join(arguments, " ")
    if "e" in flags or not scope.is_bash:
        text = _escaped(text)
    return text if "n" in flags else text + Text.known("\n")


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def _escaped(text: Text) -> Text:
    def replaced(plain: str) -> str:
        return re.sub(r"\\([ntr\\])", lambda match: _ESCAPES[match.group(1)], plain)

    return Text(tuple(p if p.why else type(p)(replaced(p.text)) for p in text.pieces))


def printf(arguments: list[Text]) -> Text | None:
    """`%s`, `%d`, `%%` and escapes; the format is reused while arguments remain."""
    if not arguments or str(arguments[0]).startswith("-"):
        return None
    form, rest = _escaped(arguments[0]), list(arguments[1:])
    parts = re.split(r"(%[sdi%])", certain(form))
    if any("%" in part and not re.fullmatch(r"%[sdi%]", part) for part in parts):
        return None
    out = _printed(parts, rest)
    while rest and any(part in ("%s", "%d", "%i") for part in parts):
        out += _printed(parts, rest)
    return out


def _printed(parts: list[str], rest: list[Text]) -> Text:
    out = Text()
    for part in parts:
        if part == "%%":
            out += Text.known("%")
        elif part in ("%d", "%i"):
            out += rest.pop(0) if rest else Text.known("0")
        elif part == "%s":
            out += rest.pop(0) if rest else Text()
        else:
            out += Text.known(part)
    return out


def _seq(arguments: list[str]) -> Text | None:
    if not 1 <= len(arguments) <= 3 or not all(re.fullmatch(r"-?\d+", a) for a in arguments):
        return None
    numbers = [int(argument) for argument in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0 or abs(numbers[-1] - first) > 100_000:
        return None
    last = numbers[-1] + (1 if step > 0 else -1)
    return Text.known("".join(f"{number}\n" for number in range(first, last, step)))
