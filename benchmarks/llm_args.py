"""Compares penstock's classes of TensorRT-LLM's engine file with TensorRT-LLM 1.3.0rc29.

    python benchmarks/llm_args.py                       Writes results/llm_args.json.
    python benchmarks/llm_args.py --source LLM_ARGS.py  Also prints what differs from that file.

llm_args_reference.json has the names and choices of six classes, from the API reference of the
release. The source of the release is not public without its image. --source reads a copy of
tensorrt_llm/llmapi/llm_args.py with `ast`; tensorrt_llm is not imported.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from penstock.engines.llm_args import sections, speculation
from penstock.engines.llm_args.args import TorchLlmArgs
from report import write_result

REFERENCE = Path(__file__).with_name("llm_args_reference.json")
COMMAND = "python benchmarks/llm_args.py"
# The classes whose names the reference has completely.
COMPLETE: Mapping[str, type[BaseModel]] = {
    "TorchLlmArgs": TorchLlmArgs,
    "KvCacheConfig": sections.KvCacheConfig,
    "CacheTransceiverConfig": sections.CacheTransceiverConfig,
    "MoeConfig": sections.MoeConfig,
    "Eagle3DecodingConfig": speculation.Eagle3,
    "MTPDecodingConfig": speculation.Mtp,
}
# TensorRT-LLM's other classes, for --source.
OTHERS: Mapping[str, type[BaseModel]] = {
    "KVEventsConfig": sections.KVEventsConfig,
    "BlockReuseConfig": sections.BlockReuseConfig,
    "MambaStateConfig": sections.MambaStateConfig,
    "EncodeCudaGraphConfig": sections.CudaGraphConfig,
    "AttentionDpConfig": sections.AttentionDpConfig,
    "SchedulerConfig": sections.SchedulerConfig,
    "TorchCompileConfig": sections.TorchCompileConfig,
    "ModelExpressConfig": sections.MxConfig,
    "GmsConfig": sections.GmsConfig,
    "Nvfp4GemmConfig": sections.Nvfp4GemmConfig,
    "KvCacheConnectorConfig": sections.KvConnectorConfig,
    "SAEnhancerConfig": speculation.SaConfig,
    "NGramDecodingConfig": speculation.NGram,
    "SADecodingConfig": speculation.SuffixAutomaton,
    "DraftTargetDecodingConfig": speculation.DraftTarget,
    "PARDDecodingConfig": speculation.Pard,
    "DFlashDecodingConfig": speculation.DFlash,
    "DSparkDecodingConfig": speculation.DSpark,
    "SaveHiddenStatesDecodingConfig": speculation.SaveState,
    "AutoDecodingConfig": speculation.DecodingConfig,
}
# Differences that are right, and why.
EXPLAINED: Mapping[str, str] = {
    "TorchLlmArgs.mpi_session": "only TensorRT-LLM: its key is _mpi_session, and a file cannot "
    "contain a session",
}


def choices(annotation: Any) -> set[Any] | None:
    """The values of the Literal in an annotation; None if there is none."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    found = (choices(part) for part in get_args(annotation))
    return next((f for f in found if f is not None), None)


def name_differences(name: str, model: type[BaseModel], theirs: Iterable[str]) -> dict[str, str]:
    ours, names = set(model.model_fields), set(theirs)
    return {f"{name}.{n}": "only TensorRT-LLM" for n in sorted(names - ours)} | {
        f"{name}.{n}": "only penstock" for n in sorted(ours - names)
    }


def choice_differences(
    name: str, model: type[BaseModel], theirs: Mapping[str, list[Any] | None]
) -> dict[str, str]:
    """None in ``theirs`` means any string."""
    found = {}
    for key, values in theirs.items():
        field = model.model_fields.get(key)
        ours = choices(field.annotation) if field else None
        if field and ours != (None if values is None else set(values)):
            found[f"{name}.{key}"] = f"{sorted(ours or ())} instead of {values or 'any string'}"
    return found


def differences(reference: Mapping[str, Any]) -> dict[str, str]:
    """Every name and choice of the complete classes that one side lacks, by class and key."""
    found: dict[str, str] = {}
    for name, model in COMPLETE.items():
        theirs = reference["classes"][name]
        found |= name_differences(name, model, theirs["fields"])
        found |= choice_differences(name, model, theirs["choices"])
    return found


def declared(tree: ast.Module) -> dict[str, set[str]]:
    """The public fields of each class of a file, those of its bases included."""
    nodes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}

    def fields(name: str) -> set[str]:
        if name not in nodes:
            return set()
        found = set().union(*(fields(ast.unparse(base)) for base in nodes[name].bases))
        for statement in nodes[name].body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                is_field = "ClassVar" not in ast.unparse(statement.annotation)
                found |= {statement.target.id} if is_field else set()
        return {field for field in found if not field.startswith("_")}

    return {name: fields(name) for name in nodes}


def source_differences(path: Path) -> dict[str, str]:
    classes = declared(ast.parse(path.read_text("utf-8")))
    found: dict[str, str] = {}
    for name, model in {**COMPLETE, **OTHERS}.items():
        if name in classes:
            found |= name_differences(name, model, classes[name])
        else:
            found[name] = "no such class"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, metavar="LLM_ARGS.py")
    options = parser.parse_args()
    if options.source:
        for where, what in source_differences(options.source).items():
            print(f"{where}: {what}")
        return
    reference = json.loads(REFERENCE.read_text("utf-8"))
    found = differences(reference)
    classes = reference["classes"].values()
    figures = {
        "tensorrt_llm": reference["tensorrt_llm"],
        "classes": len(COMPLETE),
        "fields": sum(len(c["fields"]) for c in classes),
        "choices": sum(len(c["choices"]) for c in classes),
        "differences": found,
        "explained": dict(EXPLAINED),
        "unexplained": sorted(set(found) - set(EXPLAINED)),
    }
    write_result("llm_args", COMMAND, figures)


if __name__ == "__main__":
    main()
