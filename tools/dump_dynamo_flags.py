"""Write the flags of Dynamo's own parsers as JSON: run it in penstock's environment.

uv run python tools/dump_dynamo_flags.py > dynamo_flags.json

The engines' own flags, which these parsers pass on, are in vllm_flags.json and sglang_flags.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import re
import sys
from typing import Any

from penstock.engines.parse_child import PARSERS, parsers_noted

# Enough for each parser to reach its end.
MODEL = ["--model", "m"]
MINIMAL = {
    "dynamo.frontend": [],
    "dynamo.mocker": ["--model-path", "m"],
    "dynamo.trtllm": MODEL,
    "dynamo.vllm": MODEL,
    "penstock.llamacpp": MODEL,
}


def described(action: argparse.Action) -> dict[str, Any]:
    """Arity, kind and choices; ``variable`` is the one that Dynamo's help names for the flag."""
    entry: dict[str, Any] = {"flags": sorted(action.option_strings, key=len, reverse=True)}
    if action.nargs == 0:
        entry["action"] = "switch"
    elif isinstance(action, argparse.BooleanOptionalAction):
        entry["action"] = "negatable"
    else:
        entry["action"] = "list" if action.nargs in ("*", "+") else "store"
        if action.nargs == "?":
            entry["nargs"] = action.nargs
        entry["kind"] = getattr(action.type, "__name__", "str") if action.type else "str"
    if action.choices is not None:
        entry["choices"] = sorted(str(getattr(c, "value", c)) for c in action.choices)
    help_text = " ".join((action.help or "").split())
    if deprecated := deprecations(help_text, entry["flags"]):
        entry["deprecated"] = deprecated
    elif renamed := renames(help_text, entry["flags"]):
        entry["renamed"] = renamed
    return entry


def deprecations(help_text: str, flags: list[str]) -> dict[str, str]:
    """Flag → what Dynamo's help says of its end."""
    if removed := re.match(r"(--[\w-]+) is deprecated and (will be removed in .*?)\. ", help_text):
        return {removed[1]: removed[2]}
    if ended := re.match(r"(?:DEPRECATED: |Deprecated )(.*?)(?<!\d)\.(?: |$)", help_text):
        return dict.fromkeys((f for f in flags if not f.startswith("--no-")), ended[1])
    return {}


def renames(help_text: str, flags: list[str]) -> dict[str, str]:
    """Deprecated name → current name of the same flag."""
    old = re.search(r"deprecating flag: (--[\w-]+)", help_text)
    names = [flag for flag in flags if not flag.startswith("--no-")]
    return {old[1]: next(n for n in names if n != old[1])} if old else {}


def flags_of(module: str) -> list[dict[str, Any]]:
    noted: list[argparse.Action] = []
    parse = PARSERS[module]()
    quiet = io.StringIO()
    noting = parsers_noted(lambda parser: noted.extend(parser._actions))
    with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet), noting:
        try:
            parse(MINIMAL[module])
        except SystemExit:
            sys.exit(f"{module} refuses {MINIMAL[module]}: {quiet.getvalue()}")
    named = {a.option_strings[0]: described(a) for a in noted if a.option_strings}
    return sorted(named.values(), key=lambda entry: entry["flags"][0])


def main() -> None:
    os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] = "127.0.0.1"
    version = importlib.metadata.version("ai-dynamo")
    made_by = f"tools/dump_dynamo_flags.py from ai-dynamo=={version}"
    modules = {module: flags_of(module) for module in sorted(PARSERS)}
    json.dump({"made_by": made_by, "modules": modules}, sys.stdout, indent=1)
    print(flush=True)
    os._exit(0)  # the native runtime's threads


if __name__ == "__main__":
    main()
