"""tree-sitter's view of a script, and what `run` needs of it beyond the tree.

tree-sitter-bash 0.25 gives the structure (lists, loops, functions). Its simple commands are not
trusted: it joins `A=1 B=2⏎cmd`, lets a redirection swallow the words behind it and drops `\\ ` before
a line's end, so `lex` reads those again from their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from penstock.manifests.shell.lex import command_end, tokens

# Read by `lex` again: what tree-sitter cannot parse inside them does not matter.
SIMPLE = frozenset(
    {
        "command",
        "declaration_command",
        "unset_command",
        "variable_assignment",
        "variable_assignments",
        "test_command",
    }
)
_RESERVED = frozenset(
    {"if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac"}
    | {"{", "}", "!", "[[", "function", "select", "in"}
)
_STRUCTURE = frozenset(
    {"program", "list", "pipeline", "negated_command", "if_statement", "elif_clause"}
    | {"else_clause", "for_statement", "c_style_for_statement", "while_statement", "do_group"}
    | {"case_statement", "case_item", "subshell", "compound_statement", "function_definition"}
    | {"redirected_statement", "heredoc_redirect"}
)
_LANGUAGE = Language(tree_sitter_bash.language())


def parse(script: str) -> Node:
    return Parser(_LANGUAGE).parse(script.encode()).root_node


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


def simple_text(node: Node) -> str:
    """A simple command with its redirections, from its first character to where `lex` ends it."""
    source = (_root(node).text or b"")[node.start_byte :].decode()
    size = len(text_of(node))
    return source[: command_end(source, size)]


def doubts(root: Node) -> list[str]:
    """Where tree-sitter could not parse the script, or took its structure for another.

    It joins `A=1 B=2 # c` with a `while` on the next line, and `A=\\⏎⏎else` into one word, without
    an ERROR node; a reserved word at the head of a simple command gives that away.
    """
    found = []
    for node in _doubtful(root):
        shown = " ".join(text_of(node).split())[:60] or f"a missing {node.type}"
        found.append(f"the script near `{shown}` is no shell text that penstock reads")
    return found


def _doubtful(node: Node) -> Iterator[Node]:
    if node.type == "ERROR" or node.is_missing:
        yield node
    elif node.type in SIMPLE:
        if not text_of(node).startswith("[[") and _has_reserved_head(simple_text(node)):
            yield node
    elif node.type in _STRUCTURE:
        for child in node.children:
            yield from _doubtful(child)


def _has_reserved_head(text: str) -> bool:
    is_head = True
    for token in tokens(text):
        if is_head and token.kind == "word" and token.text in _RESERVED:
            return True
        is_head = token.kind != "word" or (is_head and "=" in token.text)
    return False


@dataclass(frozen=True)
class Heredoc:
    """``expands`` is off when the delimiter is quoted."""

    body: str
    expands: bool


@dataclass(frozen=True)
class Redirected:
    """A statement, its here-documents, and what follows on the line.

    tree-sitter hangs `&& next` and `| next` behind `<<EOF` into the here-document's node.
    """

    body: Node | None
    heredocs: tuple[Heredoc, ...]
    operator: str = ""
    following: Node | None = None


def redirected(node: Node) -> Redirected:
    body = node.child_by_field_name("body")
    heredocs = []
    operator, following = "", None
    for child in node.children:
        if child.type == "heredoc_redirect":
            heredocs.append(_heredoc(child))
            operator, following = _continuation(child) or (operator, following)
    return Redirected(body, tuple(heredocs), operator, following)


def _continuation(node: Node) -> tuple[str, Node] | None:
    right = node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if right is not None and operator is not None:
        return operator.type, right
    pipeline = next((c for c in node.children if c.type == "pipeline"), None)
    return ("|", pipeline) if pipeline is not None else None


def _heredoc(node: Node) -> Heredoc:
    start = next(c for c in node.children if c.type == "heredoc_start")
    delimiter = text_of(start)
    source = _root(node).text or b""
    # The body's node leaves out leading blanks and expansions at its start: take whole lines.
    begin = source.find(b"\n", _line_end(source, start.end_byte)) + 1
    end_node = next((c for c in node.children if c.type == "heredoc_end"), None)
    end = source.rfind(b"\n", 0, end_node.start_byte) + 1 if end_node else len(source)
    body = source[begin : max(end, begin)].decode()
    if text_of(node).startswith("<<-"):
        body = re.sub(r"^\t+", "", body, flags=re.MULTILINE)
    return Heredoc(body, expands=not re.search(r"['\"\\]", delimiter))


def _line_end(source: bytes, at: int) -> int:
    end = source.find(b"\n", at)
    return len(source) if end < 0 else end


def _root(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def statements(block: list[Node]) -> Iterator[tuple[Node, bool]]:
    """The statements of a block, each with whether `&` sends it to the background."""
    for index, child in enumerate(block):
        if child.is_named and child.type != "comment":
            following = block[index + 1] if index + 1 < len(block) else None
            yield child, following is not None and following.type == "&"


def branches(node: Node) -> Iterator[tuple[list[Node], list[Node]]]:
    """Condition and body of `if` and of every `elif`; an `else` has no condition."""
    condition: list[Node] = []
    body: list[Node] | None = None
    for child in node.children:
        if child.type == "then":
            body = []
        elif child.type in ("elif_clause", "else_clause"):
            continue
        elif body is not None:
            body.append(child)
        elif child.type not in ("if", "elif"):
            condition.append(child)
    yield condition, body or []
    for child in node.children:
        if child.type == "elif_clause":
            yield from branches(child)
        elif child.type == "else_clause":
            yield [], child.children


def cases(node: Node) -> Iterator[tuple[list[str], list[Node]]]:
    """The patterns and the body of every item of a `case`."""
    for item in node.children:
        if item.type != "case_item":
            continue
        close = next(i for i, child in enumerate(item.children) if child.type == ")")
        head = _between(item, item.start_byte, item.children[close].start_byte)
        patterns = [token.text for token in tokens(head) if token.kind == "word"]
        yield patterns, item.children[close + 1 :]


def case_word(node: Node) -> str:
    """What stands between `case` and `in`."""
    keyword = next(child for child in node.children if child.type == "in")
    return _between(node, node.children[0].end_byte, keyword.start_byte).strip()


def for_words(node: Node) -> list[str] | None:
    """The words behind `in`; None for a loop over the positionals."""
    keyword = next((child for child in node.children if child.type == "in"), None)
    if keyword is None:
        return None
    text = _between(node, keyword.end_byte, node.end_byte)
    return [token.text for token in tokens(text[: command_end(text, 0)])]


def _between(node: Node, start: int, end: int) -> str:
    return (_root(node).text or b"")[start:end].decode()
