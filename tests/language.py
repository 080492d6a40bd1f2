"""The words that penstock does not use: each with the contexts in which it is banned and what to
write instead. ``python tests/language.py PATH…`` lists the uses under the paths."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from pathlib import Path


class Context(Enum):
    """Where a word stands."""

    NAME = "name"  # an identifier that Python code defines, or a module's file name
    TEXT = "text"  # a string literal: messages, help, descriptions
    PROSE = "prose"  # comments and docstrings
    DOCS = "docs"  # Markdown, and comments and text of YAML, templates and shell scripts


ANYWHERE = frozenset(Context)
WORDS = frozenset({Context.TEXT, Context.PROSE, Context.DOCS})
NAMES = frozenset({Context.NAME})


@dataclass(frozen=True)
class Ban:
    """``pattern`` is searched in each text of the contexts. ``example`` has it, ``ordinary`` is a
    use of the same letters that stays allowed."""

    pattern: str
    contexts: frozenset[Context]
    instead: str
    example: str
    ordinary: str

    @cached_property
    def search(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)


@dataclass(frozen=True)
class Use:
    """One text of one context, at its line."""

    file: str
    line: int
    context: Context
    text: str


BANS = (
    # Names. A name is matched as it is written, in snake_case or CamelCase.
    Ban(r"^_?said$|_said$|^said_", NAMES, "value, configured, declared", "said", "saidi_arabia"),
    Ban(r"(^|_)(told|heard)(_|$)", NAMES, "given, reported", "is_told", "folded_told2"),
    Ban(r"reckon", ANYWHERE, "compute", "reckoned", "recon"),
    Ban(r"^_?whole$|^is_whole$", NAMES, "positive_int, is_complete", "whole", "wholesale"),
    Ban(r"stand_?ins?(_|$)|stands_in", NAMES, "substitute", "stand_ins", "standing"),
    Ban(r"hand_?offs?(_|$)", NAMES, "kv_transfer", "hand_off", "handler"),
    Ban(r"what_?ifs?(_|$)", NAMES, "sensitivity", "what_ifs", "what"),
    Ban(r"(^|_)wanted(_|$)", NAMES, "requested, PlanRequest", "wanted", "unwantedly"),
    # Alertmanager's own term for an alert stays.
    Ban(r"silence(?! (it|the alert) in Alertmanager)", ANYWHERE, "suppress", "silenced",
        "silence it in Alertmanager"),
    Ban(r"^_?(roll|chronicle|judge|judged)$", NAMES, "rollout, history, check", "judge",
        "rollout"),
    Ban(r"(^|_)(nobody|somebody|lived_with)(_|$)", NAMES, "unset, other", "nobody", "body"),
    Ban(r"(^|_)promised?s?(_|$)", NAMES, "slo", "promises", "compromise"),
    Ban(r"gpu_hour$", NAMES, "gpu_hour_price", "gpu_hour", "gpu_hours"),
    # Words of messages, help, docs and comments.
    Ban(r"\bhand-?offs?\b", WORDS, "KV transfer", "the hand-off of KV", "hand off to the caller"),
    Ban(r"\bstand-?ins?\b|\bstands? in for\b|\bstood in\b", WORDS, "substitute",
        "the mocker stands in for it", "the cluster stands in a rack"),
    Ban(r"\blive[sd]? with\b", WORDS, "suppressed", "lived with: a test", "it lives within"),
    Ban(r"\bgo(es)? back\b|\bwent back\b", WORDS, "rolls back", "it goes back to revision 3",
        "background"),
    Ban(r"\bmend(s|ed|ing)?\b", WORDS, "fix", "mend the file", "recommended"),
    Ban(r"\b(is|was|are|be|been) (told|heard)\b|\btold apart\b|\b(said|told|tells?) aloud\b",
        WORDS, "reported, given, distinguished", "the mocker is told its limits",
        "the operator told us"),
    Ban(r"\bin place of what\b", WORDS, "replaces", "in place of what is there",
        "in place of a list"),
    Ban(r"\bpromis(e|es|ed)\b", WORDS, "SLO, guarantee", "what a request is promised",
        "compromise"),
    Ban(r"\bfirst queue\b", WORDS, "prefill queue time", "first queue p99", "first, queue it"),
    Ban(r"\bwhat[- ]ifs?\b", WORDS, "sensitivity", "a what-if", "what iffy"),
    Ban(r"\bwhole numbers?\b", WORDS, "integer", "must be a whole number", "the whole file"),
    Ban(r"\b(nobody|somebody)\b", WORDS, "the actor, or the passive", "nobody filled it in",
        "body"),
    Ban(r"\bbeside\b", WORDS, "next to, besides", "a planner beside fixed pools", "besides"),
    Ban(r"\bwhoever\b", WORDS, "the actor", "whoever wrote it", "however"),
    Ban(r"(/s|\btokens|\brequests|\bseconds|\bms|\bGPUs?) an? (second|user|GPU|worker|node|step)\b",
        WORDS, "per", "tokens/s a user", "the requests of a user"),
    Ban(r"\bfor ever\b", WORDS, "forever", "waits for ever", "for every"),
    Ban(r"\banew\b", WORDS, "again", "computed anew", "a new one"),
    Ban(r"\bby chance\b", WORDS, "randomly", "ties are broken by chance", "a chance of 2 %"),
    Ban(r"(?<!there )\b(is|are|was|were) no (YAML|map|number|name|list|multiple|graph|string)\b",
        WORDS, "is not a …", "it is no YAML", "there is no graph"),
    Ban(r"\bspelt\b", WORDS, "spelled", "as it is spelt", "spelled"),
    Ban(r"\bhouse rules?\b", WORDS, "style rules", "the house rules", "warehouse rules"),
    Ban(r"\bhot house\b|\bturns? .{0,30} round\b", WORDS, "avoid", "turns Dynamo's traps round",
        "a round trip"),
    Ban(r"\broll-outs?\b", WORDS, "rollout", "a roll-out", "roll out the change"),
    Ban(r"\b(its|their|our|your|his|engine's) own words\b|(?<!name )\bin words\b", WORDS,
        "name the format", "in the engine's own words", "key words"),
    Ban(r"\bcatalogue of workers\b|\bthe registry (has|itself|says)\b", WORDS, "discovery",
        "workers that the registry itself has", "a container registry"),
    Ban(r"\b(colour|behaviour|neighbour|favour|honour|recognis|normalis|organis|serialis|initialis|optimis(?!t|m)|utilis|minimis|maximis|quantis|tokenis|summaris|synchronis|parallelis(?!m)|labelled|modelled|centre)",
        WORDS, "American spelling", "colour", "parallelism"),
)  # fmt: skip

TEXT_FILES = (".md", ".yaml", ".yml", ".tpl", ".sh", ".toml")


def uses(path: Path, name: str) -> Iterator[Use]:
    """Every name, string, comment and line of documentation in a file; ``name`` is for messages."""
    if path.suffix == ".py":
        yield Use(name, 1, Context.NAME, path.stem)
        yield from _python(path.read_text(), name)
    elif path.suffix in TEXT_FILES or path.name in ("Makefile", "NOTES.txt"):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield Use(name, number, Context.DOCS, line)


def _python(source: str, name: str) -> Iterator[Use]:
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            docstrings.add(node.value.lineno)
            yield Use(name, node.value.lineno, Context.PROSE, str(value))
        for text, line in _names(node):
            yield Use(name, line, Context.NAME, text)
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and node.lineno not in docstrings:
            yield Use(name, node.lineno, Context.TEXT, node.value)
    # The tokenizer takes half of the time: only for files in which a comment may have such a word.
    if not any(_found(Context.PROSE, text) for text in COMMENT.findall(source)):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Use(name, token.start[0], Context.PROSE, token.string)


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that the node defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node.lineno
        case ast.arg():
            yield node.arg, node.lineno
        case ast.Name(ctx=ast.Store()):
            yield node.id, node.lineno
        case ast.Attribute(ctx=ast.Store()):
            yield node.attr, node.lineno
        case ast.AnnAssign(target=ast.Name()):
            yield node.target.id, node.lineno


def banned(texts: Iterable[Use]) -> Iterator[tuple[Ban, Use]]:
    """The uses of banned words."""
    for use in texts:
        for ban in _found(use.context, use.text):
            yield ban, use


COMMENT = re.compile(r"#.*$", re.MULTILINE)  # or a part of a string


@cache
def _found(context: Context, text: str) -> tuple[Ban, ...]:
    return tuple(b for b in BANS if context in b.contexts and b.search.search(text))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        root = Path(argument)
        for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if file.is_file() and "__pycache__" not in file.parts:
                for ban, use in banned(uses(file, str(file))):
                    text = " ".join(use.text.split())[:100]
                    print(f"{use.file}:{use.line} {use.context.value}: {text!r} → {ban.instead}")
