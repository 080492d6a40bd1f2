"""Finds where quotes, expansions, words and operators of shell text begin and end."""

from __future__ import annotations

import re

_BRACKET_OPERATORS = ("&&", "||", "<", ">", "(", ")")


class LexError(Exception):
    """A script that is not valid, such as one with an unclosed quote."""


def skip(text: str, at: int) -> int:
    """The index after the quoted string, expansion or character that begins at ``at``."""
    char = text[at]
    if char == "\\":
        return min(at + 2, len(text))
    if char == "'":
        return _find(text, "'", at + 1)
    if char == '"':
        return _skip_double(text, at + 1)
    if char == "`":
        return _skip_backticks(text, at + 1)
    if char == "$" and at + 1 < len(text):
        return _skip_dollar(text, at)
    if char in "<>" and text.startswith("(", at + 1):
        return _skip_to(text, at + 2, ")", "(")
    return at + 1


def _skip_dollar(text: str, at: int) -> int:
    following = text[at + 1]
    if text.startswith("((", at + 1):
        end = _arithmetic_end(text, at + 3)
        if end is not None:
            return end
    if following == "(":
        return _skip_to(text, at + 2, ")", "(")
    if following == "{":
        return _skip_to(text, at + 2, "}", "")  # bash does not count a bare `{` in `${…}`
    if following == "'":
        return _skip_ansi(text, at + 2)
    if following == '"':
        return _skip_double(text, at + 2)
    return at + 1


def _arithmetic_end(text: str, at: int) -> int | None:
    """The index after the `))` of `$((`; None for a command substitution of a subshell."""
    depth = 0
    while at < len(text):
        if text[at] == ")" and depth == 0:
            return at + 2 if text.startswith("))", at) else None
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at = skip(text, at) if text[at] not in "<>" else at + 1
    return None


def _skip_to(text: str, at: int, closer: str, opener: str) -> int:
    depth = 1
    while at < len(text):
        char = text[at]
        if char == closer:
            depth -= 1
            if depth == 0:
                return at + 1
        elif opener and char == opener:
            depth += 1
        elif char == "#" and closer == ")" and text[at - 1] in " \t\n;(":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        at = skip(text, at)
    raise LexError(f"`{closer}` is missing")


def _skip_double(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == '"':
            return at + 1
        if text[at] in "'<>" or text.startswith("$'", at) or text.startswith('$"', at):
            at += 1
        else:
            at = skip(text, at)
    raise LexError('the closing " is missing')


def _skip_ansi(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "'":
            return at + 1
        at += 2 if text[at] == "\\" else 1
    raise LexError("the closing ' is missing")


def _skip_backticks(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "`":
            return at + 1
        at += 2 if text[at] == "\\" else 1
    raise LexError("the closing ` is missing")


def _find(text: str, char: str, at: int) -> int:
    end = text.find(char, at)
    if end < 0:
        raise LexError(f"the closing {char} is missing")
    return end + 1


def word_end(text: str, at: int) -> int:
    start = at
    while at < len(text):
        char = text[at]
        if char in "<>" and text.startswith("(", at + 1):
            at = skip(text, at)
        elif char in " \t\n;&|<>)":
            break
        elif char == "(":
            # `name=(…)` is one word, `name()` is not.
            if at == start or text[at - 1] not in "=?*+@!":
                break
            at = _skip_to(text, at + 1, ")", "(")
        else:
            at = skip(text, at)
    return max(at, start + 1)


def bracket_words(text: str) -> list[str]:
    """The words of `[[ … ]]`, in which `<`, `(`, `&&` and a regular expression are words."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n" or text.startswith("\\\n", at):
            at += 1 if text[at] in " \t\n" else 2
            continue
        start = at
        is_regex = bool(found) and found[-1] == "=~"
        operator = next((o for o in _BRACKET_OPERATORS if text.startswith(o, at)), "")
        if operator and not is_regex:
            found.append(operator)
            at += len(operator)
            continue
        stops = " \t\n" if is_regex else " \t\n)&|"
        while at < len(text) and (at == start or text[at] not in stops):
            at = skip(text, at)
        found.append(text[start:at])
    return found


def references(text: str) -> list[str]:
    """The `${NAME}` and `$(NAME)` in ``text``."""
    return re.findall(r"\$\{[A-Za-z_]\w*[^}]*\}|\$\([A-Za-z_]\w*\)", text)
