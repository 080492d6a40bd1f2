"""Write SGLang's server flags as JSON, with substitutes for all that SGLang imports.

uv venv /tmp/sglang; uv pip install --python /tmp/sglang/bin/python --no-deps sglang==0.5.21
uv pip install --python /tmp/sglang/bin/python msgspec orjson packaging pyyaml
/tmp/sglang/bin/python tools/dump_sglang_flags.py > sglang_flags.json
uv run python tools/dump_sglang_flags.py --dynamo > dynamo_sglang_flags.json  # Dynamo's own
"""

from __future__ import annotations

import abc
import argparse
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import types
from typing import Any

from dump_vllm_flags import plain

# The converters by qualified name, read from sglang/srt/utils/common.py, cuda_graph_config.py and
# dynamo/common/configuration of these versions. A name missing here stops the run.
KINDS: dict[str, dict[str, Any]] = {
    "str": {"kind": "str"},
    "int": {"kind": "int"},
    "float": {"kind": "float"},
    "loads": {"kind": "json"},
    "json_list_type": {"kind": "json"},
    "nullable_str": {"optional": True, "kind": "str"},
    # SGLang's: (\d+(\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T), case-sensitive, no decimals before *i; or int()
    "human_readable_int": {"kind": "sglang_human_int"},
    "parse_cuda_graph_config_arg": {"kind": "cuda_graph_config"},
    "nullable_int": {"optional": True, "kind": "int"},
    "nullable_float": {"optional": True, "kind": "float"},
    "KvRouterArgGroup.add_arguments.<locals>.<lambda>": {"kind": "str"},  # aic is read as ais
    "_conditional_disagg_config_arg": {"kind": "conditional_disagg_config"},
    "parse_bool": {"kind": "bool_word"},
    "_parse_structural_tag": {"kind": "structural_tag"},
}
REAL = {"msgspec", "orjson", "packaging", "yaml", "sglang"}
DEPRECATED = re.compile(r"^\W*deprecated|\bis deprecated|\bdeprecated[:;.]", re.IGNORECASE)


class AnyMeta(abc.ABCMeta):
    """Classes with every attribute, as base class, decorator or annotation."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = anything(name)
        setattr(cls, name, made)
        return made

    def __or__(cls, _other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, _item: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return super().__call__()


def anything(name: str) -> Any:
    return AnyMeta(name, (), {"__call__": lambda _self, f=None, *_a, **_k: f})


class AnyModule(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012
    __version__ = "2.9.1"  # torch's is taken apart at import

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = anything(name)
        setattr(self, name, made)
        return made


class Substitutes(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: only for what is neither installed here nor of the standard library."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        top = fullname.partition(".")[0]
        if top in REAL or top in sys.stdlib_module_names or top in ("org", "java"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return AnyModule(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def option(action: argparse.Action) -> dict[str, Any]:
    entry: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if isinstance(action, argparse.BooleanOptionalAction):
        entry["flags"] = [f for f in action.option_strings if not f.startswith("--no-")]
        entry["action"] = "negatable"
    elif isinstance(action, argparse._StoreConstAction):  # store_true is one
        true = isinstance(action, argparse._StoreTrueAction)
        entry["action"] = "store_true" if true else "store_const"
        entry["const"] = None if true else action.const
    elif isinstance(action, argparse._VersionAction):
        entry["action"] = "version"
    elif type(action).__name__ == "DeprecatedStoreTrueAction":
        entry["action"] = "store_true"
    else:
        names = {"LoRAPathAction": "lora_paths", "_AppendAction": "append"}
        plain_store = type(action) is argparse._StoreAction
        warning = type(action).__name__ == "DeprecatedAction" and isinstance(
            action, argparse._StoreAction
        )  # Dynamo's: warns, then stores
        if not (plain_store or warning or type(action).__name__ in names):
            raise TypeError(f"{action.option_strings}: {type(action)}")
        entry["action"] = names.get(type(action).__name__, "store")
        entry |= KINDS[getattr(action.type, "__qualname__", "str")]
        entry["nargs"] = action.nargs
        entry["const"] = plain(action.const)
        entry["choices"] = sorted(action.choices, key=repr) if action.choices else None
        entry["required"] = action.required or None
    if entry["dest"] != "version" and action.default is not argparse.SUPPRESS:
        entry["default"] = plain(action.default)
    entry["deprecated"] = deprecation(action)
    return {key: value for key, value in entry.items() if value is not None}


def deprecation(action: argparse.Action) -> str | None:
    text = " ".join((action.help or "").split())
    if text == argparse.SUPPRESS or not DEPRECATED.search(text):
        return None
    return text.split(" env var:")[0].strip()[:160]


def sglang_options() -> tuple[str, list[dict[str, Any]]]:
    sys.meta_path.append(Substitutes())
    found = importlib.util.find_spec("sglang")  # not imported: its __init__ starts half of it
    assert found is not None
    assert found.submodule_search_locations
    package = types.ModuleType("sglang")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["sglang"] = package
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    version = importlib.metadata.version("sglang")
    options = [option(action) for action in parser._actions]
    return f"ServerArgs.add_cli_args of sglang=={version}", options


def dynamo_options() -> tuple[str, list[dict[str, Any]]]:
    for name in [n for n in os.environ if n.startswith(("DYN_", "NATS_", "SGLANG_"))]:
        del os.environ[name]  # they are the flags' defaults
    from dynamo.common.configuration.groups.router_args import add_worker_router_arguments
    from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup
    from dynamo.sglang.backend_args import DynamoSGLangArgGroup

    parser = argparse.ArgumentParser(add_help=False)
    DynamoRuntimeArgGroup().add_arguments(parser)
    DynamoSGLangArgGroup().add_arguments(parser)
    add_worker_router_arguments(parser)
    # The last is dynamo/sglang/_compat.py's, added to SGLang's own parser.
    parser.add_argument(
        "--disable-piecewise-cuda-graph",
        dest="cuda_graph_backend_prefill",
        action="store_const",
        const="disabled",
        default=argparse.SUPPRESS,
    )
    version = importlib.metadata.version("ai-dynamo")
    options = []
    for action in parser._actions:
        env = re.findall(r"\bENV_VAR: *(\w+)|\benv var:? *(\w+)", action.help or "", re.IGNORECASE)
        entry = option(action)
        if env:
            entry["env"] = next(name for name in env[-1] if name)
        options.append(entry)
    return f"the parser of dynamo/sglang/args.py in ai-dynamo=={version}", options


def main() -> None:
    source, options = dynamo_options() if "--dynamo" in sys.argv[1:] else sglang_options()
    made_by = f"tools/dump_sglang_flags.py from {source}"
    lines = ",\n".join("  " + json.dumps(entry) for entry in options)
    print(f'{{\n "made_by": {json.dumps(made_by)},\n "options": [\n{lines}\n ]\n}}')


if __name__ == "__main__":
    main()
