"""The configuration files of vLLM and SGLang, in which each key is a command-line flag.

After `load_config_file` of vllm/utils/argparse_utils.py 0.31.0 and `ConfigArgumentMerger` of
sglang/srt/utils/server_args_config_parser.py 0.5.21.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.engines.flags import FlagTable
from penstock.manifests.deployment import Engine


def arguments_of(engine: Engine, table: FlagTable, key: str, value: Any) -> list[str]:
    """The command-line arguments for a key and its value; null is the argument None.

    Empty for an empty list, and for false if the flag has no negative form.
    """
    head, dot, inner = key.partition(".")
    flag = f"--{head.replace('_', '-')}{dot}{inner}"
    if isinstance(value, bool):
        return _switch(engine, table, flag, value)
    if value == []:
        return []
    if isinstance(value, list):
        return [flag, *(str(item) for item in value)]
    return [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]


def _switch(engine: Engine, table: FlagTable, flag: str, value: bool) -> list[str]:
    known = table.by_spelling.get(flag)
    if engine is Engine.SGLANG and known is not None and known.takes != "none":
        return [flag, str(value).lower()]
    if value:
        return [flag]
    negative = f"--no-{flag[2:]}"
    return [negative] if negative in table.by_spelling else []
