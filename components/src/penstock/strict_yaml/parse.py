"""A YAML file of ours that is no graph, read as strictly as one: every problem, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from penstock.errors import GraphError, Problem
from penstock.strict_yaml.document import read_document
from penstock.strict_yaml.places import Places
from penstock.strict_yaml.problems import Finding, located

Model = TypeVar("Model", bound=BaseModel)


def parse_strictly(
    text: str,
    source: str,
    model: type[Model],
    findings: Callable[[ValidationError], Iterable[Finding]],
    reword: Callable[[Problem], Problem],
) -> Model:
    """The typed file, or one GraphError; ``source`` is its name, for messages. ``findings`` says
    the model's errors; ``reword`` what the reader says, who speaks of graphs."""
    try:
        document = read_document(text, source)
    except GraphError as error:
        raise GraphError(*map(reword, error.problems)) from None
    problems = [reword(problem) for problem in document.problems]
    try:
        found = model.model_validate(document.values)
    except ValidationError as error:
        places = Places(lines=document.lines)
        problems += located(findings(error), problems, places, source)
    if problems:
        raise GraphError(*sorted(problems, key=lambda p: (p.line or 0, p.place)))
    return found


def said_of(problem: Problem, what: str, example: str) -> Problem:
    """The reader's words for a file that is ``what`` (`a workload`), where ``example`` has some."""
    message = problem.message.replace("a graph is a map", f"{what} is a map")
    return replace(
        problem,
        message=message.replace("; Helm would read only the first", ""),
        fix=problem.fix.replace("one in dynamo_graphs/", example),
    )
