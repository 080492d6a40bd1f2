"""Finds where quotes, expansions, words and operators of shell text begin and end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BRACKET_OPERATORS = ("&&", "||", "<", ">", "(", ")")


class LexError(Exception):
    """A script that is not valid, such as one with an unclosed quote."""


def skip(text: str, at: int) -> int:
    """The index after the quoted string, expansion or character that begins at ``at``."""
    char = text[at]
    if char == "\\":
        return min(at + 2, len(text))
    if char == "'":
        return _behind(text, "'", at + 1, escapes=False)
    if char == '"':
        return _skip_double(text, at + 1)
    if char == "`":
        return _behind(text, "`", at + 1)
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
        return _behind(text, "'", at + 2)
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


def _behind(text: str, quote: str, at: int, *, escapes: bool = True) -> int:
    """The index after the closing quote. ``escapes``: whether a backslash can precede it."""
    while at < len(text):
        if text[at] == quote:
            return at + 1
        at += 2 if escapes and text[at] == "\\" else 1
    raise LexError(f"the closing {quote} is missing")


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
    fields: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n" or text.startswith("\\\n", at):
            at += 1 if text[at] in " \t\n" else 2
            continue
        start = at
        is_regex = bool(fields) and fields[-1] == "=~"
        operator = next((o for o in _BRACKET_OPERATORS if text.startswith(o, at)), "")
        if operator and not is_regex:
            fields.append(operator)
            at += len(operator)
            continue
        stops = " \t\n" if is_regex else " \t\n)&|"
        while at < len(text) and (at == start or text[at] not in stops):
            at = skip(text, at)
        fields.append(text[start:at])
    return fields


def references(text: str) -> list[str]:
    """The `${NAME}` and `$(NAME)` in ``text``."""
    return re.findall(r"\$\{[A-Za-z_]\w*[^}]*\}|\$\([A-Za-z_]\w*\)", text)


@dataclass
class Heredoc:
    """A here-document; ``body`` is read at the end of its line, and a quoted delimiter disables
    expansion."""

    delimiter: str
    strips_tabs: bool
    expands: bool
    body: str = ""


@dataclass(frozen=True)
class Token:
    """One token of a script."""

    # word, redirect, operator, newline or end
    kind: str
    # Of a redirect, its operator.
    text: str
    heredoc: Heredoc | None = field(default=None, compare=False)


_REDIRECT = re.compile(r"(\d*|&)(<<<|<<-?|<>|<&|>&|>>|>\||<|>)")
_OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", ";", "&", "|", "(", ")")


@dataclass
class Scanner:
    text: str
    at: int = 0
    pending: list[Heredoc] = field(default_factory=list)
    ahead: Token | None = None
    ahead_end: int = 0

    def peek(self) -> Token:
        """The next token, which is not consumed."""
        if self.ahead is None:
            self._skip_blanks()
            self.ahead, self.ahead_end = self._read(self.at)
        return self.ahead

    def take(self) -> Token:
        token = self.peek()
        self.at, self.ahead = self.ahead_end, None
        if token.kind == "newline":
            self._heredocs()
        elif token.kind == "redirect" and token.text.lstrip("0123456789") in ("<<", "<<-"):
            return self._heredoc(token)
        return token

    def take_raw(self, end: int) -> str:
        """Raw text up to ``end``: arithmetic, `[[ … ]]`."""
        text, self.at, self.ahead = self.text[self.at : end], end, None
        return text

    def starts(self, text: str) -> bool:
        self._skip_blanks()
        return self.text.startswith(text, self.at)

    def _skip_blanks(self) -> None:
        while self.ahead is None and self.at < len(self.text):
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _read(self, at: int) -> tuple[Token, int]:
        text = self.text
        if at >= len(text):
            return Token("end", ""), at
        if text[at] == "\n":
            return Token("newline", "\n"), at + 1
        match = _REDIRECT.match(text, at)
        if match and not (match.group() in "<>" and text.startswith("(", match.end())):
            return Token("redirect", match.group()), match.end()
        for operator in _OPERATORS:
            if text.startswith(operator, at):
                return Token("operator", operator), at + len(operator)
        end = word_end(text, at)
        return Token("word", text[at:end]), end

    def _heredoc(self, token: Token) -> Token:
        word = self.take()
        if word.kind != "word":
            raise LexError("a here-document has no delimiter")
        delimiter = re.sub(r"['\"\\]", "", word.text)
        heredoc = Heredoc(delimiter, token.text.endswith("-"), delimiter == word.text)
        self.pending.append(heredoc)
        return Token("redirect", token.text, heredoc)

    def _heredocs(self) -> None:
        for heredoc in self.pending:
            self._body(heredoc)
        self.pending.clear()

    def _body(self, heredoc: Heredoc) -> None:
        lines: list[str] = []
        while self.at < len(self.text):
            line = self._line(heredoc)
            if line.rstrip("\n") == heredoc.delimiter:
                break
            lines.append(line)
        heredoc.body = "".join(lines)

    def _line(self, heredoc: Heredoc) -> str:
        """One line of the text; a final backslash joins the next line if the text expands."""
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end + 1
        line, self.at = self.text[self.at : end], end
        if heredoc.strips_tabs:
            line = line.lstrip("\t")
        backslashes = len(line[:-1]) - len(line[:-1].rstrip("\\"))
        if heredoc.expands and line.endswith("\n") and backslashes % 2 and self.at < len(self.text):
            return line + self._line(heredoc)
        return line


def closing(text: str, at: int, closer: str) -> int:
    """The index of the first ``closer`` from ``at`` on, outside of quotes and expansions."""
    depth = 0
    while at < len(text):
        if depth == 0 and text.startswith(closer, at):
            return at
        depth += {"(": 1, ")": -1}.get(text[at], 0) if closer == "))" else 0
        at = skip(text, at) if text[at] not in "<>" else at + 1
    raise LexError(f"`{closer}` is missing")


def words(text: str) -> list[str]:
    """The words between the parentheses of an array, which may have several lines."""
    scanner, tokens = Scanner(text), []
    while (token := scanner.take()).kind != "end":
        if token.kind == "word":
            tokens.append(token.text)
        elif token.kind != "newline":
            raise LexError(f"unexpected `{token.text}` in an array")
    return tokens
