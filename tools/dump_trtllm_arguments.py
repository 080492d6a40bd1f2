"""Write the arguments of TensorRT-LLM's engine file as JSON: run it in an image of TensorRT-LLM.

python3 tools/dump_trtllm_arguments.py > trtllm_arguments.json

The committed table of 1.3.0rc29 was not made in its image: docs/contributing/
engine-args-differences.md lists its sources.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

Node = dict[str, Any]
Schema = Mapping[str, Any]
LIMITS = ("ge", "gt", "le", "strict", "min_length")
ANY: Node = {"type": "any", "null": True}
# What code of the engine checks, which no schema states. Keys by their path in the file.
OF_VALIDATORS: Mapping[str, Node] = {
    "load_format": {
        "type": "choice",
        "of": ["auto", "dummy", "vision_only", "gms"],
        "any_case": True,
        "by_number": True,
    },
    "kv_cache_config.free_gpu_memory_fraction": {"type": "float", "ge": 0, "le": 1},
    "mx_config.preshard_strategy": {"type": "choice", "of": ["per_module"]},
}
# The engine fails later with 0, in a division or an allocation.
AT_LEAST_ONE = (
    *("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size"),
    *("max_batch_size", "max_seq_len", "max_beam_width", "max_num_tokens"),
    "kv_cache_config.tokens_per_block",
)
# The engine calls the class with the keys of the section.
NOT_NULL = (
    *("lora_config", "telemetry_config", "attention_dp_config", "dwdp_config"),
    *("reorder_policy_config", "decoding_config", "layer_wise_benchmarks_config"),
)
# Methods of speculation → keys that their validators require.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Eagle3", "Eagle", "Draft_Target"), ("max_draft_len", "speculative_model")),
    **dict.fromkeys(("NGram", "SA", "PARD", "DFlash", "DSpark"), ("max_draft_len",)),
}


def main() -> None:
    arguments: Any = import_module("tensorrt_llm.llmapi.llm_args").TorchLlmArgs
    table = {"tensorrt_llm": version("tensorrt_llm"), "file": completed(of_model(arguments))}
    json.dump(table, sys.stdout, indent=1)
    print()


def of_model(model: Any) -> Node:
    """The node of a pydantic model."""
    schema: Schema = model.__pydantic_core_schema__
    shared = {inner["ref"]: inner for inner in schema.get("definitions", ())}
    return node(schema, shared)


def node(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    """The node of one of pydantic-core's schemas. A kind that is not known here accepts any value.
    ``shared``: schemas that others refer to."""
    kind = schema["type"]
    if kind in ("bool", "int", "float", "str"):
        return {"type": kind, **{name: schema[name] for name in LIMITS if name in schema}}
    if kind == "literal" and all(isinstance(choice, str) for choice in schema["expected"]):
        return {"type": "choice", "of": [*schema["expected"]]}
    read = NODES.get(kind)
    return read(schema, shared) if read else dict(ANY)


def _section(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    keys: dict[str, Node] = {}
    aliases: dict[str, str] = {}
    required: list[str] = []
    for name, field in _fields(schema)["fields"].items():
        keys[name] = node(field["schema"], shared)
        required += [name] if field["schema"]["type"] != "default" else []
        names = field.get("validation_alias", ())
        aliases |= {path[0]: name for path in names if isinstance(path, list) and path[0] != name}
    listed = {"required": required, "aliases": aliases}
    return {"type": "section", "keys": keys, **{k: v for k, v in listed.items() if v}}


def _fields(schema: Schema) -> Schema:
    """The fields of a model, below the validators of the model."""
    while "fields" not in schema:
        schema = schema["schema"]
    return schema


def _union(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    choices = (choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"])
    return {"type": "one of", "options": [node(choice, shared) for choice in choices]}


def _tagged(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    if not isinstance(schema["discriminator"], str):
        return dict(ANY)
    options = {str(tag): node(choice, shared) for tag, choice in schema["choices"].items()}
    return {"type": "tagged", "tag": schema["discriminator"], "options": options}


def _dict(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    names = node(schema["keys_schema"], shared)
    is_text = names == {"type": "str"}
    values = node(schema["values_schema"], shared)
    return {"type": "dict", **({} if is_text else {"names": names}), "values": values}


def _list(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    least = {"min_length": schema["min_length"]} if "min_length" in schema else {}
    return {"type": "list", "items": node(schema["items_schema"], shared), **least}


def _inner(schema: Schema, shared: Mapping[str, Schema]) -> Node:
    return node(schema["schema"], shared)


NODES: Mapping[str, Callable[[Schema, Mapping[str, Schema]], Node]] = {
    "list": _list,
    "dict": _dict,
    "model": _section,
    "union": _union,
    "tagged-union": _tagged,
    "nullable": lambda schema, shared: {**_inner(schema, shared), "null": True},
    "definition-ref": lambda schema, shared: node(shared[schema["schema_ref"]], shared),
    **dict.fromkeys(
        ("default", "definitions", "function-before", "function-after", "function-wrap"), _inner
    ),
}


def completed(table: Node) -> Node:
    """The table with what code of the engine checks."""
    for path, value in OF_VALIDATORS.items():
        above, _, key = path.rpartition(".")
        _at(table, above)["keys"][key] = dict(value)
    for path in AT_LEAST_ONE:
        _at(table, path)["ge"] = 1
    for path in NOT_NULL:
        _at(table, path).pop("null", None)
    for method, names in REQUIRED.items():
        section = table["keys"]["speculative_config"]["options"][method]
        section["required"] = sorted({*section.get("required", ()), *names})
        for name in names:
            section["keys"][name].pop("null", None)
        section["keys"]["max_draft_len"]["ge"] = 1
    return table


def _at(table: Node, path: str) -> Node:
    for key in filter(None, path.split(".")):
        table = table["keys"][key]
    return table


if __name__ == "__main__":
    main()
