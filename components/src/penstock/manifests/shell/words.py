"""Expands words to fields: braces, tilde, `$`, quotes and word splitting. Runs nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.manifests.shell import parameters
from penstock.manifests.shell.arithmetic import evaluate
from penstock.manifests.shell.lex import LexError, skip
from penstock.manifests.shell.scope import Scope
from penstock.manifests.shell.text import Piece, Text, UnknownError, Value, as_text, certain

_PLAIN = re.compile(r"[^\\'\"`$~\s]+|\s+")
_PLAIN_DOUBLE = re.compile(r"[^\\`$]+")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "e": "\x1b"}

Substitute = Callable[[str, str, Scope], Text]


@dataclass
class _Fields:
    """Collects fields; ``splits`` is off where the shell does no word splitting."""

    splits: bool
    done: list[list[tuple[Piece, bool]]] = field(default_factory=list)
    current: list[tuple[Piece, bool]] | None = None
    separators: str = " \t\n"
    empty_lists: int = 0  # `"$@"` without elements is no field, `""` is one

    @property
    def size(self) -> tuple[int, int]:
        return len(self.done), -1 if self.current is None else len(self.current)

    def add(self, text: Text, *, quoted: bool) -> None:
        self.current = self.current or []
        self.current.extend((piece, quoted) for piece in text.pieces)

    def end(self) -> None:
        if self.current is not None:
            self.done.append(self.current)
        self.current = None

    def split(self, text: Text) -> None:
        """Add unquoted text of an expansion: blanks in its known parts end the field."""
        if not self.splits or not self.separators:
            self.add(text, quoted=False)
            return
        # Each separator that is no blank ends a field, which may be empty.
        is_hard = bool(self.separators.strip())
        separator = f"[{re.escape(self.separators)}]" + ("" if is_hard else "+")
        for piece in text.pieces:
            parts = [piece.text] if piece.why else re.split(separator, piece.text)
            for index, part in enumerate(parts):
                if index and is_hard:
                    self.current = self.current or []
                if index:
                    self.end()
                if part:
                    self.add(Text((Piece(part, piece.why),)), quoted=False)

    def elements(self, items: tuple[Text, ...], *, quoted: bool) -> None:
        self.empty_lists += not items
        for index, item in enumerate(items):
            if index:
                self.end() if self.splits else self.add(Text.known(" "), quoted=True)
            if quoted:
                self.add(item, quoted=True)
            else:
                self.split(item)


@dataclass(frozen=True)
class Expander:
    """Expansion in one scope; ``substitute`` returns the output of a command substitution."""

    scope: Scope
    substitute: Substitute

    def fields(self, word: str) -> list[Text]:
        """The fields of a word on a command line."""
        words = expand_braces(word) if self.scope.is_bash else [word]
        fields: list[Text] = []
        for part in words:
            fields += [_finished(pieces) for pieces in self._run(part, splits=True)]
        return fields

    def single(self, word: str) -> Text:
        """The word without splitting: assignments, redirections, `[[`, `case`."""
        return Text.merged(piece for piece, _ in self.pieces(word))

    def pieces(self, word: str) -> list[tuple[Piece, bool]]:
        """The word without splitting, and for each piece whether it was quoted."""
        parts = self._run(word, splits=False)
        return parts[0] if parts else []

    def document(self, text: str) -> Text:
        """A here-document with an unquoted delimiter: as in "…", but `"` is ordinary text."""
        sink = _Fields(splits=False)
        self._double(text, sink, quotes=False)
        return Text(tuple(piece for piece, _ in sink.current or []))

    def number(self, text: str) -> int:
        """The value of arithmetic, in which `$name` is replaced first."""
        plain = certain(self.document(text))
        return evaluate(plain, self.scope.number, self._put)

    def _put(self, name: str, number: int) -> None:
        self.scope.assign(name, Text.known(str(number)))

    def _run(self, word: str, *, splits: bool) -> list[list[tuple[Piece, bool]]]:
        sink = _Fields(splits=splits, separators=self.scope.separators())
        self._scan(word, sink, splits_blanks=False)
        sink.end()
        return sink.done

    def _scan(self, text: str, sink: _Fields, *, splits_blanks: bool) -> None:
        at = 0
        while at < len(text):
            end = skip(text, at)
            char = text[at]
            if char == "\\":
                if text[at:end] != "\\\n":
                    sink.add(Text.known(text[at + 1 : end] or "\\"), quoted=True)
            elif char == "'":
                sink.add(Text.known(text[at + 1 : end - 1]), quoted=True)
            elif char == '"':
                self._quoted(text[at + 1 : end - 1], sink)
            elif char == "$":
                end = self._dollar(text, at, sink, quoted=False)
            elif char == "`":
                self._backticks(text[at:end], sink, quoted=False)
            elif char == "~" and at == 0 and text[1:2] in ("", "/"):
                sink.add(as_text(self.scope.get("HOME", "~")), quoted=True)
            elif char in "<>" and end > at + 1:
                why = f"{text[at:end]}: a process substitution"
                sink.add(Text.unknown(text[at:end], why), quoted=False)
            else:
                match = _PLAIN.match(text, at)
                end = match.end() if match and char not in "~<>" else at + 1
                plain = Text.known(text[at:end])
                sink.split(plain) if splits_blanks else sink.add(plain, quoted=False)
            at = end

    def _quoted(self, inner: str, sink: _Fields) -> None:
        before = sink.size, sink.empty_lists
        self._double(inner, sink, quotes=True)
        if (sink.size, sink.empty_lists) == before:
            sink.add(Text(), quoted=True)

    def _double(self, text: str, sink: _Fields, *, quotes: bool) -> None:
        escaped = '$`"\\' if quotes else "$`\\"
        at = 0
        while at < len(text):
            if text[at] == "\\":
                following = text[at + 1 : at + 2]
                if following in escaped and following:
                    sink.add(Text.known(following), quoted=True)
                elif following != "\n":
                    sink.add(Text.known("\\" + following), quoted=True)
                at += 2
            elif text[at] == "$" and text[at + 1 : at + 2] not in ("'", '"'):
                at = self._dollar(text, at, sink, quoted=True)
            elif text[at] == "`":
                end = skip(text, at)
                self._backticks(text[at:end], sink, quoted=True)
                at = end
            else:
                match = _PLAIN_DOUBLE.match(text, at)
                end = match.end() if match else at + 1
                sink.add(Text.known(text[at:end]), quoted=True)
                at = end

    def _backticks(self, spelling: str, sink: _Fields, *, quoted: bool) -> None:
        script = re.sub(r"\\([`$\\])", r"\1", spelling[1:-1])
        self._emit(self.substitute(script, spelling, self.scope), sink, quoted=quoted)

    def _dollar(self, text: str, at: int, sink: _Fields, *, quoted: bool) -> int:
        """Expand the `$…` at ``at``; returns the index after it."""
        end = skip(text, at)
        spelling = text[at:end]
        if spelling.startswith("$'"):
            sink.add(Text.known(_ansi(spelling[2:-1])), quoted=True)
        elif spelling.startswith('$"'):
            self._quoted(spelling[2:-1], sink)
        elif spelling.startswith("$((") and spelling.endswith("))"):
            self._emit(self._arithmetic(spelling), sink, quoted=quoted)
        elif spelling.startswith("$("):
            self._emit(self.substitute(spelling[2:-1], spelling, self.scope), sink, quoted=quoted)
        elif spelling.startswith("${"):
            self._parameter(spelling[2:-1], spelling, sink, quoted=quoted)
        elif match := _NAME.match(text, at + 1):
            name = match.group()
            self._parameter(name, "$" + name, sink, quoted=quoted)
            end = match.end()
        else:
            sink.add(Text.known("$"), quoted=quoted)
            end = at + 1
        return end

    def _arithmetic(self, spelling: str) -> Text:
        try:
            return Text.known(str(self.number(spelling[3:-2])))
        except UnknownError as error:
            return Text.unknown(spelling, f"{spelling}: {error}")

    def _parameter(self, inner: str, spelling: str, sink: _Fields, *, quoted: bool) -> None:
        result = parameters.expand(inner, spelling, self)
        if isinstance(result, parameters.Default):
            if quoted:
                self._default_in_quotes(result.word, sink)
            else:
                self._scan(result.word, sink, splits_blanks=sink.splits)
        elif isinstance(result, parameters.Joined) and quoted:
            sink.add(Text.join(result, self.scope.separators()[:1]), quoted=True)
        else:
            self._emit(result, sink, quoted=quoted)

    def _default_in_quotes(self, word: str, sink: _Fields) -> None:
        """`"${V:-a "b" 'c'}"`: inner double quotes are removed, single quotes are kept."""
        at = plain = 0
        while at < len(word):
            if word[at] == '"':
                end = skip(word, at)
                self._double(word[plain:at], sink, quotes=True)
                self._double(word[at + 1 : end - 1], sink, quotes=True)
                at = plain = end
            else:
                at = at + 1 if word[at] == "'" else skip(word, at)
        self._double(word[plain:], sink, quotes=True)

    def _emit(self, expansion: Value, sink: _Fields, *, quoted: bool) -> None:
        if isinstance(expansion, tuple):
            sink.elements(expansion, quoted=quoted)
        elif quoted:
            sink.add(expansion, quoted=True)
        else:
            sink.split(expansion)


def _finished(pieces: list[tuple[Piece, bool]]) -> Text:
    """Unquoted `*`, `?` and `[…]` match file names, which only the cluster knows."""
    bare = "".join(piece.text if not quoted else "x" for piece, quoted in pieces if not piece.why)
    text = Text.merged(piece for piece, _ in pieces)
    if re.search(r"[*?]|\[.+\]", bare):
        why = f"{text}: an unquoted pattern, the shell compares it with file names"
        return Text.unknown(str(text), why)
    return text


def _ansi(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        body = match.group(1)
        if body[0] == "x" and len(body) > 1:
            return chr(int(body[1:], 16))
        if body[0] in "01234567":
            return chr(int(body, 8))
        return _ANSI.get(body, "\\" + body)

    return re.sub(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", replaced, text, flags=re.DOTALL)


_MOST = 10_000  # words; a launch has dozens, and `{1..9}{1..9}…` grows without limit

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([A-Za-z])\.\.([A-Za-z])")


def expand_braces(word: str) -> list[str]:
    """The words to which bash expands ``word``; the word itself without braces."""
    at = 0
    while at < len(word):
        if word[at] == "{":
            end, commas = _closing(word, at)
            parts = _parts(word, at, end, commas) if end is not None else None
            if parts is not None and end is not None:
                head, rest = word[:at], expand_braces(word[end + 1 :])
                middle = [word for part in parts for word in expand_braces(part)]
                if len(middle) * len(rest) > _MOST:
                    raise LexError(f"a brace expansion has more than {_MOST} words")
                return [head + m + t for m in middle for t in rest]
        at = skip(word, at)
    return [word]


def _closing(word: str, at: int) -> tuple[int | None, list[int]]:
    """The index of the `}` for the `{` at ``at``, and of the commas that belong to it."""
    depth = 0
    commas: list[int] = []
    at += 1
    while at < len(word):
        char = word[at]
        if char == "}" and depth == 0:
            return at, commas
        if char == "," and depth == 0:
            commas.append(at)
        depth += {"{": 1, "}": -1}.get(char, 0)
        at = skip(word, at)
    return None, []


def _parts(word: str, start: int, end: int, commas: list[int]) -> list[str] | None:
    if not commas:
        return _range(word[start + 1 : end])
    bounds = [start, *commas, end]
    return [word[a + 1 : b] for a, b in itertools.pairwise(bounds)]


def _range(text: str) -> list[str] | None:
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, step, a, b = match.groups()
    if a is not None:
        return [chr(code) for code in _steps(ord(a), ord(b), 1)]
    if abs(int(last) - int(first)) > _MOST:
        raise LexError(f"a brace expansion has more than {_MOST} words")
    width = max(len(first), len(last)) if _is_padded(first) or _is_padded(last) else 0
    return [str(n).zfill(width) for n in _steps(int(first), int(last), abs(int(step or 1)) or 1)]


def _is_padded(number: str) -> bool:
    return bool(re.match(r"-?0\d", number))


def _steps(first: int, last: int, step: int) -> range:
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
