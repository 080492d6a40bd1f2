"""Tools for a model whose chat template renders none: a template in front of it, and a parser.

Dynamo's frontend renders the chat template of the worker's model card, so `up` gives the worker
another one. `tools.jinja` writes the tools of a request into the system message, in the format of
the parser `hermes`, and turns tool calls and their results into messages with text. The model's own
template follows and renders these messages; it renders requests without tools as before.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from penstock.local.deployment import Program
from penstock.local.request_adapter.model import chat_templates
from penstock.manifests import flags

TEMPLATE = ("--custom-jinja-template", "DYN_CUSTOM_JINJA_TEMPLATE")
PARSER = ("--dyn-tool-call-parser", "DYN_TOOL_CALL_PARSER")
HERMES = "hermes"
FILE = "/penstock/chat_template.jinja"  # `up` writes it into the run's folder
# A template with it refuses roles, and perhaps the system message that the tools need.
REFUSES = "raise_exception"


def with_tools(worker: Program, folder: str | None) -> Program:
    """``folder``: of the model's tokenizer files.

    The worker is unchanged if the model's template renders tools or refuses roles, or if the graph
    has a template of its own or another parser.
    """
    templates = chat_templates(Path(folder)) if folder is not None else []
    has_own = template(worker) or parser(worker) not in (None, HERMES)
    if len(templates) != 1 or has_own:
        return worker
    (own,) = templates
    if "tools" in own or REFUSES in own:
        return worker
    rest = flags.without_flags(worker.argv, PARSER[0])
    return replace(
        worker,
        argv=(*rest, TEMPLATE[0], FILE, PARSER[0], HERMES),
        files={**worker.files, FILE: _prefix() + own},
    )


def template(worker: Program) -> str | None:
    """The file that the worker uses instead of the model's own template: of `with_tools`, or of
    the graph."""
    return _value(worker, *TEMPLATE)


def parser(worker: Program) -> str | None:
    """The tool-call parser of the worker's output."""
    return _value(worker, *PARSER)


def _value(worker: Program, flag: str, variable: str) -> str | None:
    return flags.flag_value(worker.argv, flag) or worker.env.get(variable)


@cache
def _prefix() -> str:
    return Path(__file__).with_name("tools.jinja").read_text("utf-8").rstrip("\n")
