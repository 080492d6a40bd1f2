"""The statements of a script, as `parse` finds them and `run` follows them."""

from __future__ import annotations

from dataclasses import dataclass, field


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
