"""Follows a script statement by statement and collects what it starts. Nothing is executed.

Commands are assumed to succeed; a condition that only the cluster can decide is followed both ways,
except where one way exits: those are guards, and a deployment that works passes them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tree_sitter import Node

from penstock.manifests.shell import commands, syntax
from penstock.manifests.shell.conditions import double_bracket
from penstock.manifests.shell.flow import Break, Continue, Exit, Leave, Outcome, Replaced
from penstock.manifests.shell.lex import LexError, bracket_words
from penstock.manifests.shell.merge import merge
from penstock.manifests.shell.patterns import pattern_of
from penstock.manifests.shell.process import Candidate
from penstock.manifests.shell.scope import Scope
from penstock.manifests.shell.substitutions import substitute
from penstock.manifests.shell.text import Text, UnknownError, certain
from penstock.manifests.shell.words import Expander

_MOST_STATEMENTS = 20_000
_MOST_ROUNDS = 1_000


@dataclass
class Run:
    """One interpretation; ``candidates`` are the external commands met, in order."""

    candidates: list[Candidate] = field(default_factory=list)
    left: int = _MOST_STATEMENTS
    depth: int = 0
    doubts: list[str] = field(default_factory=list)

    def script(self, text: str, scope: Scope) -> None:
        """Follow a whole script to its end or its exit."""
        with contextlib.suppress(Exit, Leave):
            self.text(text, scope)

    def text(self, text: str, scope: Scope) -> Outcome:
        """Follow shell text in the shell that runs: `eval`, `source`."""
        root = syntax.parse(text)
        self.doubts += syntax.doubts(root)
        return self.block(root.children, scope)

    def block(self, children: list[Node], scope: Scope) -> Outcome:
        outcome = Outcome(True)
        for node, in_background in syntax.statements(children):
            if in_background:
                outcome = self._background(node, scope)
            else:
                outcome = self.statement(node, scope)
        return outcome

    def statement(self, node: Node, scope: Scope, *, stdin: Text | None = None) -> Outcome:
        self.left -= 1
        if self.left < 0:
            raise Exit(None)
        try:
            return self._statement(node, scope, stdin)
        except (LexError, UnknownError) as error:
            shown = " ".join(syntax.text_of(node).split())[:80]
            scope.note(f"`{shown}`: cannot be followed ({error})")
            return Outcome(None)

    def _statement(self, node: Node, scope: Scope, stdin: Text | None) -> Outcome:
        text = syntax.text_of(node)
        if node.type == "ERROR":
            return Outcome(None)  # `script` has noted it
        if node.type == "compound_statement" and text.startswith("(("):
            return Outcome(self._expander(scope).number(text[2:-2]) != 0)
        if node.type == "test_command" and text.startswith("[["):
            return self._condition(text, scope)
        if node.type in syntax.SIMPLE:
            return commands.simple(self, syntax.simple_text(node), (), scope, stdin=stdin)
        if node.type == "redirected_statement":
            return self.redirected(node, scope, stdin)
        handler = _HANDLERS.get(node.type)
        if handler is None:
            raise UnknownError(f"a {node.type.replace('_', ' ')}")
        return handler(self, node, scope)

    def _expander(self, scope: Scope) -> Expander:
        return Expander(scope, substitute)

    def _condition(self, text: str, scope: Scope) -> Outcome:
        try:
            return Outcome(double_bracket(bracket_words(text)[1:-1], self._expander(scope)))
        except UnknownError as error:
            return Outcome(None, question=str(error))

    def _background(self, node: Node, scope: Scope) -> Outcome:
        inner = scope.copy(shares_files=True)
        before = len(self.candidates)
        with contextlib.suppress(Exit, Leave):
            self.statement(node, inner)
        commands.in_background(self.candidates, before)
        return Outcome(True)

    def compound(self, node: Node, scope: Scope) -> Outcome:
        return self.block(node.children, scope)

    def subshell(self, node: Node, scope: Scope) -> Outcome:
        try:
            return self.block(node.children, scope.copy(shares_files=True))
        except Exit as left:
            return Outcome(left.status)

    def list_(self, node: Node, scope: Scope) -> Outcome:
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        return self.joined(
            self.statement(left, scope),
            operator,
            lambda inner: self.statement(right, inner),
            scope,
        )

    def joined(
        self,
        outcome: Outcome,
        operator: str,
        right: Callable[[Scope], Outcome],
        scope: Scope,
    ) -> Outcome:
        """`&&` and `||` behind ``outcome``."""
        status = outcome.status
        if status is None and not outcome.question:
            status = True
        if status is None:
            return self.branch([right], scope, outcome.question, may_skip=True)
        if status == (operator == "&&"):
            return right(scope)
        return Outcome(status)

    def negated(self, node: Node, scope: Scope) -> Outcome:
        inner = next(child for child in node.children if child.is_named)
        outcome = self.statement(inner, scope)
        status = None if outcome.status is None else not outcome.status
        return Outcome(status, question=outcome.question or _success(inner))

    def pipeline(self, node: Node, scope: Scope) -> Outcome:
        stages = [child for child in node.children if child.is_named]
        return self.piped(stages, scope, None)

    def piped(self, stages: list[Node], scope: Scope, stdin: Text | None) -> Outcome:
        outcome = Outcome(None)
        for stage in stages:
            inner = scope.copy(shares_files=True)
            try:
                outcome = self.statement(stage, inner, stdin=stdin)
            except Exit as left:
                outcome = Outcome(left.status)
            stdin = outcome.output
        return Outcome(None, question=outcome.question, output=stdin)

    def if_(self, node: Node, scope: Scope) -> Outcome:
        open_ways: list[list[Node]] = []
        questions: list[str] = []
        for condition, body in syntax.branches(node):
            outcome = self.block(condition, scope) if condition else Outcome(True)
            status = outcome.status
            if status is None:
                open_ways.append(body)
                questions.append(outcome.question or _success(condition[-1]))
                continue
            if status:
                open_ways.append(body)
                break
        else:
            open_ways.append([])
        if not questions:
            return self.block(open_ways[0], scope)
        ways = [self._way(body) for body in open_ways]
        return self.branch(ways, scope, questions[0], may_skip=False)

    def _way(self, body: list[Node]) -> Callable[[Scope], Outcome]:
        return lambda inner: self.block(body, inner)

    def branch(
        self,
        ways: list[Callable[[Scope], Outcome]],
        scope: Scope,
        question: str,
        *,
        may_skip: bool,
    ) -> Outcome:
        """Follow every way on a scope of its own; a way that exits is a guard."""
        ends = [scope.copy()] if may_skip else []
        replaced = 0
        left: Exception | None = None
        start = len(self.candidates)
        for way in ways:
            inner, before = scope.copy(), len(self.candidates)
            try:
                way(inner)
                ends.append(inner)
            except Replaced as error:
                left, replaced = error, replaced + 1
            except (Exit, Leave) as error:
                left = error
                del self.candidates[before:]
        note = f"whether it runs depends on {question}"
        if len(ends) + replaced > 1:
            commands.add_note(self.candidates, start, note)
        if not ends and left is not None:
            raise left
        scope.become(merge(ends, f"depends on {question}"))
        if replaced:
            scope.note(note)
        return Outcome(None, question=question)

    def for_(self, node: Node, scope: Scope) -> Outcome:
        variable = syntax.text_of(node.children[1])
        expander = self._expander(scope)
        words = syntax.for_words(node)
        items = (
            list(scope.positional)
            if words is None
            else [field for word in words for field in expander.fields(word)]
        )
        body = node.child_by_field_name("body")
        for item in items[:_MOST_ROUNDS]:
            scope.assign(variable, item)
            before = len(self.candidates)
            goes_on = self._round(body, scope)
            if not item.is_known:
                note = f"runs once for each of {item}"
                commands.add_note(self.candidates, before, note)
            if not goes_on:
                break
        return Outcome(True)

    def _round(self, body: Node | None, scope: Scope) -> bool:
        """One round of a loop; False when it breaks."""
        try:
            self.block(body.children if body else [], scope)
        except Continue:
            return True
        except Break:
            return False
        return True

    def c_for(self, node: Node, scope: Scope) -> Outcome:
        head = syntax.text_of(node).split("((", 1)[1].split("))", 1)[0]
        parts = [part.strip() for part in head.split(";")]
        expander = self._expander(scope)
        body = node.child_by_field_name("body")
        expander.number(parts[0])
        for _ in range(_MOST_ROUNDS):
            if parts[1] and not expander.number(parts[1]):
                return Outcome(True)
            if not self._round(body, scope):
                return Outcome(True)
            expander.number(parts[2])
        raise UnknownError("a loop without end")

    def while_(self, node: Node, scope: Scope) -> Outcome:
        condition = node.children_by_field_name("condition")
        body = node.child_by_field_name("body")
        wanted = node.children[0].type == "while"
        for _ in range(_MOST_ROUNDS):
            before = len(self.candidates)
            outcome = self.block(condition, scope)
            if outcome.status is None:
                question = outcome.question or _success(condition[0])
                self.branch([lambda s: self._once(body, s)], scope, question, may_skip=True)
                return Outcome(True)
            if outcome.status != wanted or not self._round(body, scope):
                return Outcome(True)
            if any(c.is_dynamo for c in self.candidates[before:]) and _is_endless(condition):
                return Outcome(True)  # it starts the process again when that ends
        raise UnknownError("a loop without end")

    def _once(self, body: Node | None, scope: Scope) -> Outcome:
        self._round(body, scope)
        return Outcome(True)

    def case(self, node: Node, scope: Scope) -> Outcome:
        expander = self._expander(scope)
        text = expander.single(syntax.case_word(node))
        items = list(syntax.cases(node))
        try:
            for patterns, body in items:
                if any(_matches(p, certain(text), expander) for p in patterns):
                    return self.block(body, scope)
        except UnknownError as error:
            ways = [self._way(body) for _, body in items]
            return self.branch(ways, scope, str(error), may_skip=True)
        return Outcome(True)

    def function(self, node: Node, scope: Scope) -> Outcome:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            scope.functions[syntax.text_of(name)] = body
        return Outcome(True)

    def redirected(self, node: Node, scope: Scope, stdin: Text | None) -> Outcome:
        parts = syntax.redirected(node)
        if parts.body is None or parts.body.type in syntax.SIMPLE:
            text = syntax.simple_text(parts.body or node)
            outcome = commands.simple(self, text, parts.heredocs, scope, stdin=stdin)
        else:
            outcome = self.statement(parts.body, scope, stdin=stdin)
        if parts.following is None:
            return outcome
        if parts.operator == "|":
            stages = [child for child in parts.following.children if child.is_named]
            return self.piped(stages, scope, outcome.output)
        following = parts.following
        return self.joined(
            outcome, parts.operator, lambda inner: self.statement(following, inner), scope
        )


def _success(node: Node) -> str:
    shown = " ".join(syntax.text_of(node).split())
    return f"`{shown if len(shown) <= 80 else shown[:77] + '...'}`"


def _is_endless(condition: list[Node]) -> bool:
    return syntax.text_of(condition[0]).strip() in ("true", ":", "[ 1 ]", "((1))")


def _matches(pattern: str, text: str, expander: Expander) -> bool:
    return re.fullmatch(pattern_of(expander.pieces(pattern)), text, re.DOTALL) is not None


_HANDLERS: dict[str, Callable[[Run, Node, Scope], Outcome]] = {
    "list": Run.list_,
    "pipeline": Run.pipeline,
    "negated_command": Run.negated,
    "compound_statement": Run.compound,
    "do_group": Run.compound,
    "subshell": Run.subshell,
    "if_statement": Run.if_,
    "for_statement": Run.for_,
    "c_style_for_statement": Run.c_for,
    "while_statement": Run.while_,
    "case_statement": Run.case,
    "function_definition": Run.function,
}
