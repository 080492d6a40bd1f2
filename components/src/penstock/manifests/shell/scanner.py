"""The tokens of a script in order; a here-document is read at the end of its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.manifests.shell.lex import LexError, skip, word_end
from penstock.manifests.shell.tree import Heredoc, Token

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
    scanner, found = Scanner(text), []
    while (token := scanner.take()).kind != "end":
        if token.kind == "word":
            found.append(token.text)
        elif token.kind != "newline":
            raise LexError(f"unexpected `{token.text}` in an array")
    return found
