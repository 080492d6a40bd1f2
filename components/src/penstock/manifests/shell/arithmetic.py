"""Shell arithmetic: `$((…))`, `((…))`, `let` and the parts of `for ((…))`, on 64-bit integers."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.manifests.shell.text import UnknownError

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--"
    r"|[-+*/%&|^]=|[-+*/%()<>=!~&|^?:,])"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


def evaluate(
    text: str, get: Callable[[str], int], put: Callable[[str, int], None] | None = None
) -> int:
    """The value of ``text``; ``get`` and ``put`` access variables. Raises UnknownError."""
    return _Arithmetic(text, get, put).evaluate()


class _Arithmetic:
    def __init__(
        self, text: str, get: Callable[[str], int], put: Callable[[str, int], None] | None
    ) -> None:
        self.text = text
        self.tokens = self._split(text)
        self.at = 0
        self.get = get
        self.put = put or (lambda name, number: None)

    def _split(self, text: str) -> list[str]:
        tokens, at, text = [], 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise UnknownError(f"the arithmetic `{self.text}` is not supported")
            tokens.append(match.group(1))
            at = match.end()
        return tokens

    def evaluate(self) -> int:
        if not self.tokens:
            return 0
        number = self._comma()
        if self.at < len(self.tokens):
            raise UnknownError(f"the arithmetic `{self.text}` is not supported")
        return number

    def _peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if token not in expected:
            return ""
        self.at += 1
        return token

    def _comma(self) -> int:
        number = self._assignment()
        while self._take(","):
            number = self._assignment()
        return number

    def _assignment(self) -> int:
        name, operator = self._peek(), self._peek(1)
        if not _is_name(name) or operator[-1:] != "=" or operator in ("==", "<=", ">=", "!="):
            return self._choice()
        self.at += 2
        number = self._assignment()
        if operator != "=":
            number = _apply(operator[:-1], self.get(name), number)
        self.put(name, number)
        return number

    def _choice(self) -> int:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        # Both sides are evaluated; launches do not assign in the side that bash would skip.
        yes = self._assignment()
        self._expect(":")
        no = self._assignment()
        return yes if condition else no

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        left = self._binary(level + 1)
        while operator := self._take(*_LEVELS[level]):
            left = _apply(operator, left, self._binary(level + 1))
        return left

    def _power(self) -> int:
        base = self._unary()
        return _wrapped(base ** self._exponent()) if self._take("**") else base

    def _exponent(self) -> int:
        exponent = self._power()
        if not 0 <= exponent <= 64:
            raise UnknownError(f"the arithmetic `{self.text}` is not supported")
        return exponent

    def _unary(self) -> int:
        if step := self._take("++", "--"):
            return self._step(self._name(), 1 if step == "++" else -1)
        if operator := self._take("-", "+", "!", "~"):
            operand = self._unary()
            return {"-": -operand, "+": operand, "!": int(not operand), "~": ~operand}[operator]
        return self._primary()

    def _primary(self) -> int:
        if self._take("("):
            number = self._comma()
            self._expect(")")
            return number
        token = self._peek()
        self.at += 1
        if token[:1].isdigit():
            return int(token, 16) if token[:2].lower() == "0x" else int(token, _base(token))
        if not _is_name(token):
            raise UnknownError(f"the arithmetic `{self.text}` is not supported")
        if step := self._take("++", "--"):
            delta = 1 if step == "++" else -1
            return self._step(token, delta) - delta
        return self.get(token)

    def _name(self) -> str:
        name = self._peek()
        self.at += 1
        return name

    def _step(self, name: str, delta: int) -> int:
        number = self.get(name) + delta
        self.put(name, number)
        return number

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise UnknownError(f"the arithmetic `{self.text}` is not supported")


def _base(token: str) -> int:
    if len(token) == 1 or token[0] != "0":
        return 10
    if set(token) - set("01234567"):
        raise UnknownError(f"the octal number {token} is invalid")
    return 8


def _is_name(token: str) -> bool:
    return bool(token) and (token[0].isalpha() or token[0] == "_")


def _apply(operator: str, a: int, b: int) -> int:
    if operator in ("/", "%"):
        if b == 0:
            raise UnknownError("division by zero")
        # C rounds towards zero, Python down.
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if operator == "/" else a - b * quotient
    if operator in ("<<", ">>") and not 0 <= b < 64:
        raise UnknownError("shift out of range")
    return _wrapped(int(_OPERATIONS[operator](a, b)))


def _wrapped(number: int) -> int:
    """Shell integers have 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: bool(a) or bool(b),
    "&&": lambda a, b: bool(a) and bool(b),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
