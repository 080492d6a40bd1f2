"""Write which version of vLLM and SGLang accepts which keys and choices, as JSON.

    uv run python tools/dump_value_history.py FOLDER > value_history.json

FOLDER has one folder per package, such as `vllm-0.26.0`: of Dynamo's releases and of all versions
between, for the first with a value. The sources are parsed; none of their code runs.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.version import Version

from penstock.engines.releases import RELEASES

# Flag → the class whose fields are the keys of its JSON value. All of them forbid other keys
# (`config` in vllm/config/utils.py) since the first version below.
SECTIONS = {
    "kv-transfer-config": "KVTransferConfig",
    "kv-events-config": "KVEventsConfig",
    "speculative-config": "SpeculativeConfig",
    "compilation-config": "CompilationConfig",
    "compilation-config.pass_config": "PassConfig",
    "eplb-config": "EPLBConfig",
    "structured-outputs-config": "StructuredOutputsConfig",
    "attention-config": "AttentionConfig",
    "ec-transfer-config": "ECTransferConfig",
}
FIRST = {"vllm": "0.14.1", "sglang": "0.5.6.post2"}
# Flags with names that vLLM looks up after its parser: the annotation also allows any text. The
# registries have a few more names than the annotation.
LOOKED_UP = {
    "quantization": "",
    "load-format": "_LOAD_FORMAT_TO_MODEL_LOADER",
    "tokenizer-mode": "_VLLM_TOKENIZERS",
}
DECLARED_IN = (
    "model_executor/layers/quantization/__init__.py",
    "model_executor/model_loader/__init__.py",
    "tokenizers/registry.py",
)
# Fields whose flag has another name.
RENAMED = {"cache-dtype": "kv-cache-dtype"}
VLLM_VARIABLE = re.compile(r"""["'](VLLM_[A-Z0-9_]+)["']""")
SGLANG_VARIABLE = re.compile(r"\b(SGLANG_[A-Z0-9_]*[A-Z0-9])\b")
Choices = dict[str, list[str] | None]
Constants = Mapping[str, ast.expr]


def main(folder: Path) -> None:
    text = {
        "made_by": "tools/dump_value_history.py",
        "vllm": _history(folder, "vllm", _vllm),
        "sglang": _history(folder, "sglang", _sglang),
    }
    print(json.dumps(text, indent=None, separators=(",", ":")).replace('},"', '},\n"'))


def _history(folder: Path, engine: str, read: object) -> dict[str, object]:
    released = list(dict.fromkeys(getattr(r, engine) for r in RELEASES.values()))
    first, last = Version(FIRST[engine]), Version(released[-1])
    between = {path.name.partition("-")[2] for path in folder.glob(f"{engine}-*")}
    known = {*between, *released[released.index(FIRST[engine]) :]}
    versions = sorted((v for v in known if first <= Version(v) <= last), key=Version)
    found = {v: read(folder / f"{engine}-{v}") for v in versions}  # type: ignore[operator]
    tables = {kind: _merged({v: found[v][kind] for v in versions}) for kind in found[versions[-1]]}
    # What no version declares is a variable of another program.
    declared = tables["variables"].pop("declared")
    named = tables["variables"]["named"]
    tables["variables"]["named"] = {n: at for n, at in named.items() if n in declared}
    return {"versions": versions, **tables}


def _merged(by_version: Mapping[str, Choices]) -> dict[str, dict[str, list[int]]]:
    """Name → value → the positions of the versions that have it. `*` is every value."""
    merged: dict[str, dict[str, list[int]]] = {}
    for at, names in enumerate(by_version.values()):
        for name, values in names.items():
            for value in ["*"] if values is None else values:
                merged.setdefault(name, {}).setdefault(value, []).append(at)
    return {name: dict(sorted(values.items())) for name, values in sorted(merged.items())}


def _vllm(root: Path) -> dict[str, Choices]:
    trees = [tree_of(path) for path in sorted((root / "vllm" / "config").glob("*.py"))]
    declared = [tree_of(root / "vllm" / path) for path in DECLARED_IN]
    constants = _constants([*trees, *declared])
    without_text = {**constants, "str": ast.Constant(None)}
    classes = {n.name: n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    sections: Choices = {
        flag: sorted(name for name, _ in _fields(classes[name_of]))
        for flag, name_of in SECTIONS.items()
        if name_of in classes
    }
    choices: Choices = {}
    for title in ("CacheConfig", "ModelConfig", "ParallelConfig", "SchedulerConfig", "LoadConfig"):
        for name, annotation in _fields(classes[title]):
            flag = name.replace("_", "-")
            values = _literals(annotation, without_text if flag in LOOKED_UP else constants)
            registry = constants.get(LOOKED_UP.get(flag, ""))
            if values:
                choices[RENAMED.get(flag, flag)] = sorted(values | _keys(registry))
    spec = dict(_fields(classes["SpeculativeConfig"]))
    choices["speculative-config.method"] = (
        sorted(_literals(spec["method"], constants) or ()) or None
    )
    backends = next((root / "vllm").rglob("attention/backends/registry.py"))
    choices["attention-backend"] = sorted(_members(tree_of(backends), "AttentionBackendEnum"))
    factory = tree_of(root / "vllm/distributed/kv_transfer/kv_connector/factory.py")
    names = sorted(_registered(factory))
    variables = _variables(root / "vllm", VLLM_VARIABLE, root / "vllm" / "envs.py")
    return {
        "sections": sections,
        "choices": choices,
        "connectors": {"kv_connector": names},
        "variables": variables,
    }


def _keys(mapping: ast.expr | None) -> set[str]:
    keys = mapping.keys if isinstance(mapping, ast.Dict) else []
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def _variables(package: Path, pattern: re.Pattern[str], declared_in: Path) -> Choices:
    """The variables that the package declares, and all that it names."""
    declared = (
        set(pattern.findall(declared_in.read_text("utf-8"))) if declared_in.exists() else set()
    )
    named: set[str] = set()
    for path in package.rglob("*.py"):
        named.update(pattern.findall(path.read_text("utf-8")))
    return {"declared": sorted(declared), "named": sorted(named)}


def _members(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                    yield item.targets[0].id


def _registered(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = node.args[0] if node.args else None
            if node.func.attr == "register_connector" and isinstance(first, ast.Constant):
                yield str(first.value)


def _sglang(root: Path) -> dict[str, Choices]:
    folder = root / "sglang" / "srt"
    paths = [folder / "server_args.py", *sorted((folder / "arg_groups").rglob("*.py"))]
    trees = [tree_of(path) for path in paths]
    constants = _constants(trees)
    choices: Choices = {}
    for tree in trees:
        for name, call in _options(tree):
            for keyword in call.keywords:
                if keyword.arg == "choices":
                    choices[name] = _listed(keyword.value, constants)
    variables = _variables(folder, SGLANG_VARIABLE, folder / "environ.py")
    return {"choices": choices, "variables": variables}


def _options(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(flag, call) of `add_argument("--flag", …)`, and of fields with `Annotated[…, Arg(…)]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            for inner in ast.walk(node.annotation):
                if isinstance(inner, ast.Call):
                    yield node.target.id.replace("_", "-"), inner
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            spelling = str(node.args[0].value)
            if spelling.startswith("--"):
                yield spelling.lstrip("-"), node


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())  # some begin with a byte order mark


def _constants(trees: Iterable[ast.Module]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                found[ast.unparse(node.target)] = node.value
    return found


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation):
            yield ast.unparse(item.target), item.annotation


def _literals(node: ast.expr, constants: Constants) -> set[str] | None:
    """The texts of an annotation that allows only those and None; None for any other, which makes
    the flag unrestricted."""
    if isinstance(node, ast.BinOp):
        left, right = _literals(node.left, constants), _literals(node.right, constants)
        return None if left is None or right is None else left | right
    if isinstance(node, ast.Name) and node.id in constants:
        return _literals(constants[node.id], constants)
    if isinstance(node, ast.Constant) and node.value is None:
        return set()
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Literal", "Optional"):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = [_literal(item, constants) for item in inner]
        return None if None in parts else {v for part in parts if part for v in part}
    return None


def _literal(node: ast.expr, constants: Constants) -> set[str] | None:
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else None
    return _literals(node, constants)


def _listed(node: ast.expr, constants: Constants) -> list[str] | None:
    if isinstance(node, ast.Name) and node.id in constants:
        return _listed(constants[node.id], constants)
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return None
    if not all(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.elts):
        return None
    return sorted({str(e.value) for e in node.elts if isinstance(e, ast.Constant)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
