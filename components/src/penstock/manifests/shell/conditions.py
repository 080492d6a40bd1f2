"""`[ … ]`, `test` and `[[ … ]]`: true, false, or UnknownError if not known before runtime."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from penstock.manifests.shell.text import Text, UnknownError, certain, pattern_of
from penstock.manifests.shell.words import Expander

_NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_STRINGS = ("=", "==", "!=", "<", ">", "=~")
_UNARY = frozenset(  # one word per line would be 20 lines
    "-n -z -f -d -e -r -w -x -s -L -h -v -S -p -b -c -O -G -t".split()  # noqa: SIM905
)


def test(words: list[str], expander: Expander) -> bool:
    """`test` and `[`: ``words`` are unexpanded and without the brackets."""
    fields = [field for word in words for field in expander.fields(word)]
    return _Test(fields, expander).evaluate()


def double_bracket(words: list[str], expander: Expander) -> bool:
    """`[[`: no word splitting, and a pattern on the right of `==`."""
    return _DoubleBracket(words, expander).evaluate()


class _Test:
    def __init__(self, items: list[Text], expander: Expander) -> None:
        self.items = items
        self.expander = expander
        self.at = 0

    def evaluate(self) -> bool:
        if not self.items:
            return False
        value = self._either()
        if self.at < len(self.items):
            raise UnknownError(f"the condition at `{self._peek()}` is not supported")
        return value

    def _peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return str(self.items[index]) if index < len(self.items) else ""

    def _either(self) -> bool:
        value = self._both()
        while self._peek() == "-o":
            self.at += 1
            value = self._both() or value
        return value

    def _both(self) -> bool:
        value = self._not()
        while self._peek() == "-a":
            self.at += 1
            value = self._not() and value
        return value

    def _not(self) -> bool:
        if self._peek() == "!" and len(self.items) > self.at + 1:
            self.at += 1
            return not self._not()
        return self._primary()

    def _primary(self) -> bool:
        left = len(self.items) - self.at
        if left >= 3 and (self._peek(1) in _NUMERIC or self._peek(1) in _STRINGS):
            a, name, b = self.items[self.at], self._peek(1), self.items[self.at + 2]
            self.at += 3
            return _compare(a, name, b)
        if self._peek() == "(" and left >= 3:
            self.at += 1
            value = self._either()
            self.at += 1
            return value
        if left >= 2 and self._peek() in _UNARY:
            name, item = self._peek(), self.items[self.at + 1]
            self.at += 2
            return unary(name, item, self.expander)
        item = self.items[self.at]
        self.at += 1
        return _is_filled(item)


def _is_filled(text: Text) -> bool:
    if any(piece.text and not piece.why for piece in text.pieces):
        return True
    return bool(certain(text))


def unary(name: str, item: Text, expander: Expander) -> bool:
    if name == "-n":
        return _is_filled(item)
    if name == "-z":
        return not _is_filled(item)
    scope = expander.scope
    if name == "-v":
        variable = certain(item)
        if scope.is_set(variable) or variable in scope.unset:
            return scope.is_set(variable)
        raise UnknownError(scope.why(variable, f"${variable}"))
    path = scope.path(certain(item))
    if name in ("-e", "-f", "-r", "-s") and path in scope.files:
        return True
    raise UnknownError(f"{item}: only the cluster knows whether the file exists")


def _compare(a: Text, name: str, b: Text) -> bool:
    if name in _NUMERIC:
        return _NUMERIC[name](_number(a), _number(b))
    left, right = certain(a), certain(b)
    if name in ("=", "=="):
        return left == right
    if name == "!=":
        return left != right
    return left < right if name == "<" else left > right


def _number(text: Text) -> int:
    plain = certain(text).strip()
    try:
        return int(plain)
    except ValueError:
        raise UnknownError(f"{plain!r} is not a number") from None


class _DoubleBracket:
    def __init__(self, words: list[str], expander: Expander) -> None:
        self.words = words
        self.expander = expander
        self.at = 0

    def evaluate(self) -> bool:
        value = self._either()
        if self.at < len(self.words):
            raise UnknownError(f"the condition at `{self._peek()}` is not supported")
        return value

    def _peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.words[index] if index < len(self.words) else ""

    def _either(self) -> bool:
        value = self._both()
        while self._peek() == "||":
            self.at += 1
            value = self._both() or value
        return value

    def _both(self) -> bool:
        value = self._not()
        while self._peek() == "&&":
            self.at += 1
            value = self._not() and value
        return value

    def _not(self) -> bool:
        if self._peek() == "!":
            self.at += 1
            return not self._not()
        if self._peek() == "(":
            self.at += 1
            value = self._either()
            self.at += 1
            return value
        return self._primary()

    def _primary(self) -> bool:
        if self._peek() in _UNARY and self._peek(1) not in ("", "&&", "||", ")"):
            name, item = self._peek(), self.expander.single(self._peek(1))
            self.at += 2
            return unary(name, item, self.expander)
        left, name = self._peek(), self._peek(1)
        if name in _NUMERIC:
            self.at += 3
            return self._numeric(left, name, self.words[self.at - 1])
        if name in _STRINGS:
            self.at += 3
            return self._strings(left, name, self.words[self.at - 1])
        self.at += 1
        return _is_filled(self.expander.single(left))

    def _numeric(self, left: str, name: str, right: str) -> bool:
        """Compare two arithmetic expressions."""
        return _NUMERIC[name](
            self.expander.number(left.strip('"')), self.expander.number(right.strip('"'))
        )

    def _strings(self, left: str, name: str, right: str) -> bool:
        text = certain(self.expander.single(left))
        if name == "=~":
            return self._matches(text, right)
        if name in ("<", ">"):
            other = certain(self.expander.single(right))
            return text < other if name == "<" else text > other
        pattern = pattern_of(self.expander.pieces(right))
        return (re.fullmatch(pattern, text, re.DOTALL) is not None) == (name != "!=")

    def _matches(self, text: str, right: str) -> bool:
        parts = [
            re.escape(certain(Text((piece,)))) if quoted else certain(Text((piece,)))
            for piece, quoted in self.expander.pieces(right)
        ]
        try:
            return re.search("".join(parts), text) is not None
        except re.error:
            raise UnknownError(f"the regular expression {right} is not supported") from None
