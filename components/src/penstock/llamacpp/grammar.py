"""Refuses a request whose JSON schema or grammar llama.cpp cannot apply, before it starts.

llama.cpp only logs such an error ("llg error") and generates free text.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dynamo.llm.exceptions import InvalidArgument

from penstock.llamacpp.llguidance import LLGUIDANCE, START, LimitedLlguidance, Llguidance, Matcher

VERDICTS = 512  # most recent grammars
# A quoted string, a character class, a token or a comment of GBNF: braces in them are text.
OPAQUE = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|<\[?[^<>\s]*>|#[^\n]*', re.DOTALL)
OUTPUT = "penstock_output"  # a rule
TOKEN_NAME = re.compile(r"<[^<>\s]+>")  # that llguidance's grammars can have
SCHEMA = re.compile(r"%json\s*(?=\{)")
# Keys of a schema: with schemas by any name, and without schemas.
NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
VALUES = frozenset({"const", "default", "enum", "examples"})
MOST_ITEMS = 10_000  # llguidance refuses 32,768, and takes 0.1 s and 50 MB for 10,000
REPETITION = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


class Grammars:
    """The verdicts of one worker's llama.cpp."""

    def __init__(self, llguidance: Llguidance | None) -> None:
        """``llguidance``: None if llama.cpp was built without it. It then converts schemas to GBNF,
        whose errors it reports itself."""
        self._llguidance = llguidance
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()

    @classmethod
    def of(cls, library: Path, special_tokens: Iterable[str]) -> Grammars:
        try:
            return cls(LimitedLlguidance(library, special_tokens))
        except AttributeError:
            return cls(None)

    async def require_valid(self, body: Mapping[str, Any]) -> None:
        """InvalidArgument says why llama.cpp cannot apply the schema or grammar of a request."""
        if reason := await self.problem(body):
            raise InvalidArgument(reason)

    async def problem(self, body: Mapping[str, Any]) -> str:
        """Why llama.cpp cannot apply the schema or grammar of a request; empty if it can."""
        if "json_schema" in body:
            problem = await self._problem(schema_grammar(body["json_schema"]))
            what = "JSON schema"
        elif str(body.get("grammar", "")).startswith(LLGUIDANCE):
            problem, what = await self._problem(str(body["grammar"])), "grammar"
        else:
            problem, what = gbnf_problem(body.get("grammar")), "grammar"
        return f"llama.cpp cannot apply the {what} of this request: {problem}" if problem else ""

    def with_end(self, body: Mapping[str, Any], ends: Iterable[str]) -> Mapping[str, Any]:
        """``body`` with a grammar that may also end with one of the tokens ``ends``.

        llama.cpp tells llguidance of one end token only. If the vocabulary has another one that
        the model does not use, such as `<|endoftext|>`, the model could not end its output.
        """
        names = [name for name in ends if TOKEN_NAME.fullmatch(name)]
        if self._llguidance is None or not names:
            return body
        if "json_schema" in body:
            grammar = schema_grammar(body["json_schema"])
        else:
            grammar = str(body.get("grammar", ""))
        if not grammar.startswith(START):
            return body
        ended = f"{START}{OUTPUT} ({' | '.join(names)})?\n{OUTPUT}: "
        rest = {key: value for key, value in body.items() if key != "json_schema"}
        return {**rest, "grammar": ended + grammar.removeprefix(START)}

    async def _problem(self, grammar: str) -> str:
        if self._llguidance is None:
            return ""
        key = hashlib.sha256(grammar.encode()).digest()
        if key not in self._verdicts:
            self._verdicts[key] = repetition_problem(grammar) or await asyncio.to_thread(
                self._llguidance.problem, grammar
            )
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > VERDICTS:
            self._verdicts.popitem(last=False)
        return self._verdicts[key]

    @asynccontextmanager
    async def followed(self, body: Mapping[str, Any]) -> AsyncGenerator[Output | None, None]:
        """What follows the output of a request with a JSON schema; None for other requests."""
        if self._llguidance is None or "json_schema" not in body:
            yield None
            return
        grammar = schema_grammar(body["json_schema"])
        with await asyncio.to_thread(self._llguidance.matcher, grammar) as matcher:
            yield Output(matcher)


class Output:
    """The output of a request with a JSON schema.

    When a schema exceeds llguidance's limits in the middle of an output, llama.cpp only logs the
    error and continues with free text.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def require_allowed(self, text: str, ends: bool) -> None:
        """InvalidArgument if the schema does not allow the next ``text``. ``ends``: with the
        model's end token."""
        if self._matcher.accepts(text.encode()) and (not ends or self._matcher.may_end):
            return
        raise InvalidArgument(
            "llama.cpp stopped applying the JSON schema of this request in the middle of the "
            f"output: {self._matcher.problem or 'the output ended too early'}. Simplify the schema."
        )


def schema_grammar(schema: Any) -> str:
    """As llama.cpp writes it for llguidance."""
    return f"{START}%json {json.dumps(schema)}"


def repetition_problem(grammar: str) -> str:
    """Names a JSON schema in a `%llguidance` grammar with arrays so long that llguidance, which has
    a rule for each item, would take all memory before it refuses it."""
    for match in SCHEMA.finditer(grammar):
        try:
            nodes = [(json.JSONDecoder().raw_decode(grammar, match.end())[0], "")]
        except (ValueError, RecursionError):
            continue  # llguidance's parser has a limit too, and names the place
        while nodes:
            node, key = nodes.pop()
            if isinstance(node, list):
                nodes += [(item, key) for item in node]
            elif isinstance(node, dict) and key in NAMED:
                nodes += [(schema, "") for schema in node.values()]
            elif isinstance(node, dict) and key not in VALUES:
                for name in ("minItems", "maxItems"):
                    value = node.get(name)
                    if isinstance(value, int | float) and value > MOST_ITEMS:
                        return f"`{name}` is {value}, and can be at most {MOST_ITEMS}"
                nodes += [(value, name) for name, value in node.items()]
    return ""


def gbnf_problem(grammar: str | None) -> str:
    """What llama.cpp does not notice in a GBNF grammar; it reports other errors itself."""
    if grammar is None:
        return ""
    if not grammar.strip():
        return "it is empty"
    for match in REPETITION.finditer(OPAQUE.sub(" ", grammar)):
        if int(match[1]) > int(match[2]):  # llama.cpp would expand it until its memory is used up
            return f"the minimum of the repetition {match[0]} is greater than its maximum"
    return ""
