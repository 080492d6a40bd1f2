"""`[ … ]`, `test` and `[[ … ]]`: true, false, or UnknownError if not known before runtime."""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from penstock.manifests.shell.text import Text, UnknownError, certain, is_filled, pattern_of
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


class _Condition(ABC):
    """Words with `!`, parentheses, and operators for "and" and "or"."""

    either: str
    both: str

    def __init__(self, words: Sequence[Text | str], expander: Expander) -> None:
        self.words = words
        self.expander = expander
        self.at = 0

    def evaluate(self) -> bool:
        is_true = self._either()
        if self.at < len(self.words):
            raise UnknownError(f"the condition at `{self._peek()}` is not supported")
        return is_true

    @property
    def left(self) -> int:
        """The number of words that are not read yet."""
        return len(self.words) - self.at

    def _peek(self, ahead: int = 0) -> str:
        return str(self.words[self.at + ahead]) if ahead < self.left else ""

    def _takes(self, word: str) -> bool:
        is_next = self._peek() == word
        self.at += is_next
        return is_next

    def _either(self) -> bool:
        is_true = self._both()
        while self._takes(self.either):
            is_true = self._both() or is_true
        return is_true

    def _both(self) -> bool:
        is_true = self._not()
        while self._takes(self.both):
            is_true = self._not() and is_true
        return is_true

    def _not(self) -> bool:
        if self.left > 1 and self._takes("!"):
            return not self._not()
        return self._primary()

    def _group(self) -> bool:
        """What is between two parentheses, of which the first is read already."""
        is_true = self._either()
        self.at += 1
        return is_true

    @abstractmethod
    def _primary(self) -> bool: ...


class _Test(_Condition):
    either, both = "-o", "-a"

    def __init__(self, words: Sequence[Text], expander: Expander) -> None:
        super().__init__(words, expander)
        self.fields = words

    def evaluate(self) -> bool:
        return bool(self.words) and super().evaluate()

    def _primary(self) -> bool:
        first, name = self.fields[self.at], self._peek(1)
        if self.left >= 3 and (name in _NUMERIC or name in _STRINGS):
            self.at += 3
            return _compare(first, name, self.fields[self.at - 1])
        if self.left >= 3 and self._takes("("):
            return self._group()
        if self.left >= 2 and str(first) in _UNARY:
            self.at += 2
            return unary(str(first), self.fields[self.at - 1], self.expander)
        self.at += 1
        return is_filled(first)


def unary(name: str, item: Text, expander: Expander) -> bool:
    if name == "-n":
        return is_filled(item)
    if name == "-z":
        return not is_filled(item)
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


class _DoubleBracket(_Condition):
    either, both = "||", "&&"

    def _primary(self) -> bool:
        if self._takes("("):
            return self._group()
        if self._peek() in _UNARY and self._peek(1) not in ("", "&&", "||", ")"):
            name, item = self._peek(), self.expander.single(self._peek(1))
            self.at += 2
            return unary(name, item, self.expander)
        left, name, right = (self._peek(ahead) for ahead in range(3))
        self.at += 3 if name in _NUMERIC or name in _STRINGS else 1
        if name in _NUMERIC:  # of two arithmetic expressions
            return _NUMERIC[name](*(self.expander.number(n.strip('"')) for n in (left, right)))
        if name in _STRINGS:
            return self._strings(left, name, right)
        return is_filled(self.expander.single(left))

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
