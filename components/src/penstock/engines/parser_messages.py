"""Reads the messages of the engines' own parsers: argparse's, vLLM's and Dynamo's.

They are text of other programs, so their wording is matched here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.text.names import nearest_name

_UNKNOWN_ARGUMENT = re.compile(r"[Uu]n(?:recognized|known) arguments?[^-]*(--?[\w.-]+)")
_ARGUMENT = re.compile(r"argument (-[^:]+):")
_USAGE_ERROR = ": error: "
NEAR = 0.7  # how similar a flag must be to be suggested


def argparse_error(stderr: str) -> str:
    """What follows `prog: error: `, without the usage text above it; empty without an error."""
    return stderr.rpartition(_USAGE_ERROR)[2].strip() if _USAGE_ERROR in stderr else ""


def needs_a_package(message: str) -> bool:
    """Whether a parser failed because a package is not installed here.

    An example is `--dyn-chat-processor vllm`: the frontend's parser then runs vLLM's.
    """
    return "be installed" in message


def fix_of(message: str, module: str, flags: Sequence[str]) -> str:
    """How to fix what the parser of ``module``, which knows ``flags``, rejects."""
    if unknown := _UNKNOWN_ARGUMENT.search(message):
        first = _first_with(module, unknown[1].partition("=")[0])
        if first is not None:
            return f'Remove {unknown[1]}, or set `dynamo: "{first}"`, which has it.'
        close = nearest_name(unknown[1], flags, NEAR)
        return f"Did you mean `{close}`?" if close else f"Remove {unknown[1]}."
    if argument := _ARGUMENT.search(message):
        return f"Set {argument[1].split('/')[0]} to a value that {module} accepts."
    return "Change the component's command line or environment as the message says."


def _first_with(module: str, flag: str) -> str | None:
    """The oldest version of Dynamo whose parser has the flag; None if none does."""
    from penstock.engines.versions import first_with

    return first_with(module, flag)


def names_an_argument(message: str) -> bool:
    return "argument " in message


def quoted_in(message: str, values: Iterable[str]) -> str | None:
    """The first of the values that the message quotes."""
    return next((text for text in values if text and text in message), None)
