"""Tools for a model whose chat template renders none: a template in front of it, and a parser.

Dynamo's frontend renders the chat template of the worker's model card, so `up` gives the worker
another one. `tools.jinja` writes the tools of a request into the system message, in the format of
the parser `hermes`, and turns tool calls and their results into messages with text. The model's own
template follows and renders these messages; it renders requests without tools as before.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from penstock.local.deployment import Program
from penstock.manifests import flags
from penstock.text.values import as_mapping

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
    has_other = template(worker) or parser(worker) not in (None, HERMES)
    if len(templates) != 1 or has_other:
        return worker
    (model_template,) = templates
    if "tools" in model_template or REFUSES in model_template:
        return worker
    rest = flags.without_flags(worker.argv, PARSER[0])
    return replace(
        worker,
        argv=(*rest, TEMPLATE[0], FILE, PARSER[0], HERMES),
        files={**worker.files, FILE: _prefix() + model_template},
    )


def chat_templates(folder: Path) -> list[str]:
    """The chat template of the model in ``folder``, or several, for example one for tools."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return [file.read_text("utf-8")]
    try:
        config = as_mapping(json.loads((folder / "tokenizer_config.json").read_text()))
    except (OSError, ValueError):
        return []
    templates = config.get("chat_template")
    if isinstance(templates, list):
        return [str(entry.get("template")) for entry in templates if isinstance(entry, dict)]
    return [templates] if isinstance(templates, str) else []


def renders_tools(worker: Program, folder: str | None) -> bool:
    """Whether the template of the worker writes the tools of a request into the prompt.

    Also if the template is not known: that of a graph may be missing, and the worker then does not
    start.
    """
    file = template(worker)
    if file is None:
        templates = chat_templates(Path(folder)) if folder else []
    elif file in worker.files:
        templates = [worker.files[file]]
    else:
        templates = [Path(file).read_text("utf-8")] if Path(file).is_file() else []
    return not templates or any("tools" in text for text in templates)


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
