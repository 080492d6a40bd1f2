"""Follows a script statement by statement and collects what it starts; executes nothing.

Commands are assumed to succeed. If the value of a condition is known only on the cluster, both
branches are followed, except a branch that exits: such conditions are guards, which a working
deployment passes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.manifests.shell import commands, tree
from penstock.manifests.shell.conditions import double_bracket
from penstock.manifests.shell.lex import LexError
from penstock.manifests.shell.process import Candidate, How
from penstock.manifests.shell.scope import (
    LONGEST,
    Break,
    Continue,
    Exit,
    Leave,
    Outcome,
    Replaced,
    Scope,
    merge,
)
from penstock.manifests.shell.substitutions import substitute
from penstock.manifests.shell.text import LimitError, Text, UnknownError, certain, pattern_of
from penstock.manifests.shell.words import Expander

_MOST_STATEMENTS = 5_000
_MOST_PROGRAMS = 1_000
_MOST_ROUNDS = 256
_MOST_NESTED = 20

Branch = Callable[[Scope], Outcome]


@dataclass
class Run:
    """One pass over a script; ``candidates`` are the programs that it starts, in order."""

    candidates: list[Candidate] = field(default_factory=list)
    left: int = _MOST_STATEMENTS
    depth: int = 0

    def add(self, program: Candidate) -> None:
        """Raises LimitError."""
        self.candidates.append(program)
        if len(self.candidates) > _MOST_PROGRAMS:
            raise LimitError(f"the script starts more than {_MOST_PROGRAMS} programs")

    def script(self, text: str, scope: Scope) -> None:
        """Follow a script to its end or its exit; LexError if it is not a shell script."""
        with contextlib.suppress(Exit, Leave):
            self.text(text, scope)

    def text(self, text: str, scope: Scope) -> Outcome:
        """Follow text in the current shell: `eval`, `source`."""
        if len(text) > LONGEST:
            raise LimitError(f"the script has {len(text)} characters; the limit is {LONGEST}")
        self.depth += 1
        try:
            if self.depth > _MOST_NESTED:
                raise UnknownError("the script sources itself")
            return self.block(tree.parse(text), scope)
        finally:
            self.depth -= 1

    def block(self, block: tree.Block, scope: Scope) -> Outcome:
        outcome = Outcome(True)
        for statement in block.statements:
            outcome = self.statement(statement, scope)
        return outcome

    def statement(
        self, statement: tree.Statement, scope: Scope, *, stdin: Text | None = None
    ) -> Outcome:
        self.left -= 1
        if self.left < 0:
            raise UnknownError(f"the script runs more than {_MOST_STATEMENTS} statements")
        try:
            if isinstance(statement, tree.Simple):
                return commands.simple(self, statement.parts, scope, stdin=stdin)
            if isinstance(statement, tree.Redirected):
                return self._redirected(statement, scope, stdin)
            return _HANDLERS[type(statement)](self, statement, scope)
        except (LexError, UnknownError) as error:
            scope.note(f"a statement that penstock cannot follow: {error}")
            return Outcome(None)

    def _expander(self, scope: Scope) -> Expander:
        return Expander(scope, substitute)

    def _redirected(self, node: tree.Redirected, scope: Scope, stdin: Text | None) -> Outcome:
        outcome = self.statement(node.body, scope, stdin=stdin)
        commands.redirect(node.redirects, scope)
        return outcome

    def arithmetic(self, node: tree.Arithmetic, scope: Scope) -> Outcome:
        return Outcome(self._expander(scope).number(node.text) != 0)

    def test(self, node: tree.Test, scope: Scope) -> Outcome:
        try:
            return Outcome(double_bracket(list(node.words), self._expander(scope)))
        except UnknownError:
            return Outcome(None, question=f"`[[ {' '.join(node.words)} ]]`")

    def background(self, node: tree.Background, scope: Scope) -> Outcome:
        before = len(self.candidates)
        with contextlib.suppress(Exit, Leave):
            self.statement(node.body, scope.copy(shares_files=True))
        commands.mark(self.candidates, before, how=How.BACKGROUND)
        return Outcome(True)

    def group(self, node: tree.Group, scope: Scope) -> Outcome:
        if not node.is_subshell:
            return self.block(node.body, scope)
        try:
            return self.block(node.body, scope.copy(shares_files=True))
        except Exit as left:
            return Outcome(left.status)

    def chain(self, node: tree.Chain, scope: Scope) -> Outcome:
        """`&&` and `||`"""
        outcome = self.statement(node.left, scope)
        status = outcome.status
        if status is None and not outcome.question:
            status = True
        if status is None:
            branch = self._branch(tree.Block((node.right,)))
            return self.branch([branch], scope, outcome.question, may_skip=True)
        if status == (node.operator == "&&"):
            return self.statement(node.right, scope)
        return Outcome(status)

    def pipeline(self, node: tree.Pipeline, scope: Scope) -> Outcome:
        if len(node.stages) == 1:
            outcome = self.statement(node.stages[0], scope)
        else:
            outcome = self._piped(node.stages, scope)
        if not node.is_negated:
            return outcome
        status = None if outcome.status is None else not outcome.status
        return Outcome(status, question=outcome.question or "whether a command fails")

    def _piped(self, stages: Iterable[tree.Statement], scope: Scope) -> Outcome:
        outcome, stdin = Outcome(None), None
        for stage in stages:
            try:
                outcome = self.statement(stage, scope.copy(shares_files=True), stdin=stdin)
            except Exit as left:
                outcome = Outcome(left.status)
            stdin = outcome.output
        return Outcome(None, question=outcome.question, output=stdin)

    def if_(self, node: tree.If, scope: Scope) -> Outcome:
        bodies: list[tree.Block] = []
        question = ""
        for condition, body in node.branches:
            outcome = self.block(condition, scope)
            if outcome.status is False:
                continue
            bodies.append(body)
            if outcome.status:
                break
            question = question or outcome.question or f"`{condition.text}`"
        else:
            bodies.append(node.otherwise)
        if not question:
            return self.block(bodies[0], scope)
        return self.branch([self._branch(body) for body in bodies], scope, question, may_skip=False)

    def _branch(self, body: tree.Block) -> Branch:
        return lambda inner: self.block(body, inner)

    def branch(
        self, branches: Iterable[Branch], scope: Scope, question: str, *, may_skip: bool
    ) -> Outcome:
        """Follow each branch on a copy of the scope, and merge the scopes at the end.

        Branches that exit are left out, with the programs that they start: they are guards, which a
        working deployment passes. ``may_skip``: possibly no branch runs.
        """
        ends = [scope.copy()] if may_skip else []
        replaced = 0
        exit_error: Exception | None = None
        start = len(self.candidates)
        for follow in branches:
            inner, before = scope.copy(), len(self.candidates)
            try:
                follow(inner)
                ends.append(inner)
            except Replaced as error:
                exit_error, replaced = error, replaced + 1
            except (Exit, Leave) as error:
                exit_error = error
                del self.candidates[before:]
        if len(ends) + replaced > 1:
            note = f"runs depending on {question}"
            commands.mark(self.candidates, start, note, is_conditional=True)
        if not ends and exit_error is not None:
            raise exit_error
        scope.become(merge(ends, f"depends on {question}"))
        if replaced:
            scope.note(f"runs depending on {question}")
            scope.is_conditional = True
        return Outcome(None, question=question)

    def for_(self, node: tree.For, scope: Scope) -> Outcome:
        expander = self._expander(scope)
        items = (
            list(scope.positional)
            if node.words is None
            else [field for word in node.words for field in expander.fields(word)]
        )
        for item in items[:_MOST_ROUNDS]:
            scope.assign(node.variable, item)
            before = len(self.candidates)
            goes_on = self._round(node.body, scope)
            if not item.is_known:
                commands.mark(self.candidates, before, f"runs once for each of {item}")
            if not goes_on:
                break
        return Outcome(True)

    def _round(self, body: tree.Block, scope: Scope) -> bool:
        """One iteration of a loop; False if it breaks."""
        try:
            self.block(body, scope)
        except Continue:
            return True
        except Break:
            return False
        return True

    def count(self, node: tree.Count, scope: Scope) -> Outcome:
        expander = self._expander(scope)
        expander.number(node.start)
        for _ in range(_MOST_ROUNDS):
            if node.condition.strip() and not expander.number(node.condition):
                return Outcome(True)
            if not self._round(node.body, scope):
                return Outcome(True)
            expander.number(node.step)
        raise UnknownError("an endless loop")

    def while_(self, node: tree.While, scope: Scope) -> Outcome:
        for _ in range(_MOST_ROUNDS):
            before = len(self.candidates)
            outcome = self.block(node.condition, scope)
            if outcome.status is None:
                question = outcome.question or f"`{node.condition.text}`"
                self.branch([lambda s: self._once(node, s)], scope, question, may_skip=True)
                return Outcome(True)
            if outcome.status == node.is_until or not self._round(node.body, scope):
                return Outcome(True)
            if any(c.is_dynamo for c in self.candidates[before:]) and _is_endless(node):
                return Outcome(True)  # it restarts the process when that exits
        raise UnknownError("an endless loop")

    def _once(self, node: tree.While, scope: Scope) -> Outcome:
        self._round(node.body, scope)
        return Outcome(True)

    def case(self, node: tree.Case, scope: Scope) -> Outcome:
        expander = self._expander(scope)
        text = expander.single(node.word)
        try:
            for patterns, body in node.items:
                if any(_matches(pattern, certain(text), expander) for pattern in patterns):
                    return self.block(body, scope)
        except UnknownError:
            branches = [self._branch(body) for _, body in node.items]
            return self.branch(branches, scope, f"`case {node.word}`", may_skip=True)
        return Outcome(True)

    def function(self, node: tree.Function, scope: Scope) -> Outcome:
        scope.functions[node.name] = node.body
        return Outcome(True)


def _is_endless(node: tree.While) -> bool:
    return node.condition.text in ("true", ":", "[ 1 ]", "((1))")


def _matches(pattern: str, text: str, expander: Expander) -> bool:
    return re.fullmatch(pattern_of(expander.pieces(pattern)), text, re.DOTALL) is not None


_HANDLERS: dict[type, Callable[[Run, Any, Scope], Outcome]] = {
    tree.Arithmetic: Run.arithmetic,
    tree.Test: Run.test,
    tree.Background: Run.background,
    tree.Group: Run.group,
    tree.Chain: Run.chain,
    tree.Pipeline: Run.pipeline,
    tree.If: Run.if_,
    tree.For: Run.for_,
    tree.Count: Run.count,
    tree.While: Run.while_,
    tree.Case: Run.case,
    tree.Function: Run.function,
}
