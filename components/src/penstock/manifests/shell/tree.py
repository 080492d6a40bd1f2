"""A script to its statements: recursive descent over the POSIX shell grammar and bash's additions.

Written here because tree-sitter-bash 0.25 reads valid scripts wrongly without saying so: it joins
`A=1 B=2 # c` with a `while` on the next line and ends some here-documents nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.manifests.shell.lex import LexError, Scanner, Token, bracket_words, closing, skip


@dataclass(frozen=True)
class Simple:
    """Assignments, words and redirections, unexpanded."""

    parts: tuple[Token, ...]


@dataclass(frozen=True)
class Arithmetic:
    text: str


@dataclass(frozen=True)
class Test:
    """`[[ … ]]`, the words between the brackets."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    body: Block
    is_subshell: bool = False


@dataclass(frozen=True)
class If:
    """`if`: conditions with their bodies; ``otherwise`` is empty without `else`."""

    branches: tuple[tuple[Block, Block], ...]
    otherwise: Block


@dataclass(frozen=True)
class For:
    """`for NAME in WORD …`; without words it iterates over the positional parameters."""

    variable: str
    words: tuple[str, ...] | None
    body: Block


@dataclass(frozen=True)
class Count:
    """`for ((start; condition; step))`"""

    start: str
    condition: str
    step: str
    body: Block


@dataclass(frozen=True)
class While:
    condition: Block
    body: Block
    is_until: bool


@dataclass(frozen=True)
class Case:
    word: str
    items: tuple[tuple[tuple[str, ...], Block], ...]


@dataclass(frozen=True)
class Function:
    name: str
    body: Statement


@dataclass(frozen=True)
class Redirected:
    """A compound command with redirections."""

    body: Statement
    redirects: tuple[Token, ...]


@dataclass(frozen=True)
class Pipeline:
    stages: tuple[Statement, ...]
    is_negated: bool


@dataclass(frozen=True)
class Chain:
    """`left && right`, `left || right`"""

    left: Statement
    operator: str
    right: Statement


@dataclass(frozen=True)
class Background:
    body: Statement


@dataclass(frozen=True)
class Block:
    """Statements in order, and their text for messages."""

    statements: tuple[Statement, ...] = ()
    text: str = ""


Statement = (
    Simple
    | Arithmetic
    | Test
    | Group
    | If
    | For
    | Count
    | While
    | Case
    | Function
    | Redirected
    | Pipeline
    | Chain
    | Background
)

_ENDS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "in"})
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_MOST_NESTED = 100


def parse(script: str) -> Block:
    """The statements of ``script``; LexError if bash rejects it or penstock cannot read it."""
    parser = _Parser(script)
    block = parser.block()
    if parser.scanner.peek().kind != "end":
        raise LexError(f"no statement may begin with `{parser.scanner.peek().text}`")
    return block


class _Parser:
    def __init__(self, script: str) -> None:
        self.scanner = Scanner(script)
        self.depth = 0

    def block(self) -> Block:
        """Statements up to a word that ends them, which is not consumed."""
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise LexError("statements nested too deeply")
        statements: list[Statement] = []
        self._newlines()
        start = self.scanner.at
        while not self._is_end():
            statement = self._chain()
            if self._takes("&"):
                statement = Background(statement)
            elif not self._takes(";") and not self._is_behind_statement():
                raise LexError(f"unexpected `{self.scanner.peek().text}` after a statement")
            statements.append(statement)
            self._newlines()
        self.depth -= 1
        text = " ".join(self.scanner.text[start : self.scanner.at].split())
        return Block(tuple(statements), text.rstrip("; "))

    def _is_end(self) -> bool:
        token = self.scanner.peek()
        if token.kind == "word":
            return token.text in _ENDS
        return token.kind == "end" or (token.kind == "operator" and token.text[0] in ";)")

    def _is_behind_statement(self) -> bool:
        return self._is_end() or self.scanner.peek().kind == "newline"

    def _newlines(self) -> None:
        while self.scanner.peek().kind == "newline":
            self.scanner.take()

    def _takes(self, text: str) -> bool:
        token = self.scanner.peek()
        if token.kind not in ("operator", "word") or token.text != text:
            return False
        self.scanner.take()
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            actual = self.scanner.peek().text.strip() or "the end"
            raise LexError(f"`{text}` expected, found `{actual}`")

    def _chain(self) -> Statement:
        left = self._pipeline()
        while True:
            token = self.scanner.peek()
            if token.kind != "operator" or token.text not in ("&&", "||"):
                return left
            self.scanner.take()
            self._newlines()
            left = Chain(left, token.text, self._pipeline())

    def _pipeline(self) -> Statement:
        negated = False
        while self._takes("!"):
            negated = not negated
        stages = [self._command()]
        while self._takes("|") or self._takes("|&"):
            self._newlines()
            stages.append(self._command())
        if len(stages) == 1 and not negated:
            return stages[0]
        return Pipeline(tuple(stages), negated)

    def _command(self) -> Statement:
        if self.scanner.starts("(("):
            return self._redirected(self._arithmetic())
        if self._takes("("):
            return self._redirected(self._closed(")", is_subshell=True))
        word = self.scanner.peek()
        compound = _COMPOUNDS.get(word.text) if word.kind == "word" else None
        if compound is None:
            return self._simple()
        start = self.scanner.at
        self.scanner.take()
        if word.text == "[[":
            self.scanner.at = start
            self.scanner.ahead = None
        return self._redirected(compound(self))

    def _redirected(self, body: Statement) -> Statement:
        redirects: list[Token] = []
        while self.scanner.peek().kind == "redirect":
            redirects += self._redirect()
        return Redirected(body, tuple(redirects)) if redirects else body

    def _redirect(self) -> list[Token]:
        operator = self.scanner.take()
        if operator.heredoc is not None:
            return [operator]
        target = self.scanner.take()
        if target.kind != "word":
            raise LexError(f"the redirection `{operator.text}` has no target")
        return [operator, target]

    def _simple(self) -> Statement:
        parts: list[Token] = []
        while True:
            token = self.scanner.peek()
            if token.kind == "redirect":
                parts += self._redirect()
            elif token.kind == "word":
                parts.append(self.scanner.take())
            elif token == Token("operator", "(") and len(parts) == 1:
                return self._function_parentheses(parts[0].text)
            else:
                break
        if not parts:
            raise LexError(f"expected a command, found `{self.scanner.peek().text.strip()}`")
        return Simple(tuple(parts))

    def _function_parentheses(self, name: str) -> Statement:
        self._expect("(")
        self._expect(")")
        return self._function_body(name)

    def _function_body(self, name: str) -> Statement:
        if not _NAME.fullmatch(name):
            raise LexError(f"`{name}` is not a valid function name")
        self._newlines()
        return Function(name, self._command())

    def function(self) -> Statement:
        name = self.scanner.take().text
        if self._takes("("):
            self._expect(")")
        return self._function_body(name)

    def _arithmetic(self) -> Arithmetic:
        end = closing(self.scanner.text, self.scanner.at + 2, "))")
        return Arithmetic(self.scanner.take_raw(end + 2)[2:-2])

    def _closed(self, closer: str, *, is_subshell: bool = False) -> Group:
        body = self.block()
        self._expect(closer)
        return Group(body, is_subshell)

    def group(self) -> Statement:
        return self._closed("}")

    def test(self) -> Statement:
        scanner = self.scanner
        scanner.starts("[[")
        match = re.compile(r"\s\]\](?=[\s;&|)]|$)")
        at = scanner.at + 2
        while at < len(scanner.text) and not match.match(scanner.text, at):
            at = _skip_in_test(scanner.text, at)
        if at >= len(scanner.text):
            raise LexError("`]]` is missing")
        return Test(tuple(bracket_words(scanner.take_raw(at + 3)[2:-2])))

    def if_(self) -> Statement:
        branches, otherwise = [], Block()
        keyword = "if"
        while keyword in ("if", "elif"):
            condition = self.block()
            self._expect("then")
            branches.append((condition, self.block()))
            keyword = self.scanner.take().text
        if keyword == "else":
            otherwise = self.block()
            self._expect("fi")
        elif keyword != "fi":
            raise LexError(f"`fi` expected, found `{keyword.strip() or 'the end'}`")
        return If(tuple(branches), otherwise)

    def _do(self) -> Block:
        self._takes(";")
        self._newlines()
        self._expect("do")
        body = self.block()
        self._expect("done")
        return body

    def for_(self) -> Statement:
        if self.scanner.starts("(("):
            parts = self._arithmetic().text.split(";")
            if len(parts) != 3:
                raise LexError("a `for ((…))` needs three parts")
            return Count(parts[0], parts[1], parts[2], self._do())
        variable = self.scanner.take().text
        self._newlines()
        words: tuple[str, ...] | None = None
        if self._takes("in"):
            items = []
            while self.scanner.peek().kind == "word":
                items.append(self.scanner.take().text)
            words = tuple(items)
        return For(variable, words, self._do())

    def while_(self) -> Statement:
        return self._loop(is_until=False)

    def until(self) -> Statement:
        return self._loop(is_until=True)

    def _loop(self, *, is_until: bool) -> While:
        condition = self.block()
        return While(condition, self._do(), is_until)

    def case(self) -> Statement:
        word = self.scanner.take().text
        self._newlines()
        self._expect("in")
        self._newlines()
        items = []
        while not self._takes("esac"):
            items.append(self._item())
            self._newlines()
        return Case(word, tuple(items))

    def _item(self) -> tuple[tuple[str, ...], Block]:
        self._takes("(")
        patterns = [self._pattern()]
        while self._takes("|"):
            patterns.append(self._pattern())
        self._expect(")")
        body = self.block()
        if not self._takes(";;") and self.scanner.peek().text != "esac":
            raise LexError(f"unexpected `{self.scanner.peek().text.strip()}` in a case")
        return tuple(patterns), body

    def _pattern(self) -> str:
        token = self.scanner.take()
        if token.kind != "word":
            raise LexError("a case has no pattern")
        return token.text

    def select(self) -> Statement:
        raise LexError("`select` needs a terminal")


def _skip_in_test(text: str, at: int) -> int:
    return at + 1 if text[at] in "<>" else skip(text, at)


_COMPOUNDS: dict[str, Callable[[_Parser], Statement]] = {
    "{": _Parser.group,
    "[[": _Parser.test,
    "if": _Parser.if_,
    "for": _Parser.for_,
    "while": _Parser.while_,
    "until": _Parser.until,
    "case": _Parser.case,
    "function": _Parser.function,
    "select": _Parser.select,
}
