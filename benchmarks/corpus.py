"""Counts the bad configurations that a check finds, and its false positives on good ones.

uv run python benchmarks/corpus.py [--crd FILE]

Writes results/corpus.md and corpus.json: `penstock check`, the chart's JSON schema alone, the
CRD's schema (unknown fields forbidden; FILE holds the CRD) and kubernetes-validate (strict, 1.33).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from penstock.checks.finding import Level
from penstock.checks.run import check_file
from penstock.errors import PenstockError
from penstock.manifests.source import is_manifest, open_sources
from penstock.serving.understand import Hints
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "corpus"
SCHEMA = ROOT / "helm" / "penstock" / "values.schema.json"
HEADER = re.compile(r"^# (rule|source|what): *(.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether each tool rejects a file; None: the tool does not apply to such files."""

    name: str
    source: str
    rules: str
    caught: bool
    chart: bool | None
    crd: bool | None
    kubernetes: bool | None


def objects(path: Path) -> list[dict[str, Any]]:
    """The Kubernetes objects of a manifest or of a rendered graph; none if it is rejected."""
    try:
        text = open_sources(path)[0].text
    except PenstockError:
        text = path.read_text("utf-8") if is_manifest(path.read_text("utf-8")) else ""
    return [item for item in yaml.safe_load_all(text) if isinstance(item, dict)]


def chart_objects(path: Path) -> bool | None:
    text = path.read_text("utf-8")
    if is_manifest(text):
        return None
    schema = json.loads(SCHEMA.read_text("utf-8"))
    values = yaml.safe_load((ROOT / "helm/penstock/values.yaml").read_text("utf-8"))
    merged = {**values, **yaml.safe_load(text)}
    for name, section in values.items():
        if isinstance(section, dict) and isinstance(merged[name], dict):
            merged[name] = {**section, **merged[name]}
    return any(True for _ in jsonschema.Draft7Validator(schema).iter_errors(merged))


def crd_check(crd: Path | None) -> Callable[[Path], bool | None]:
    if crd is None:
        return lambda _: None
    versions = yaml.load(crd.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    validators = {
        f"nvidia.com/{v['name']}": jsonschema.Draft202012Validator(
            closed(v["schema"]["openAPIV3Schema"])
        )
        for v in versions["spec"]["versions"]
    }

    def objects_to(path: Path) -> bool | None:
        graphs = [o for o in objects(path) if o.get("kind") == "DynamoGraphDeployment"]
        return any(
            True
            for graph in graphs
            for _ in validators[str(graph.get("apiVersion"))].iter_errors(graph)
        )

    return objects_to


def closed(schema: Any) -> Any:
    """A structural schema as JSON schema: no unknown fields, int-or-string as both types."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    open_ended = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"}
    if isinstance(schema.get("properties"), dict) and not open_ended & schema.keys():
        result["additionalProperties"] = False
    if schema.get("properties", {}).keys() == {"name"} and schema.get("type") != "object":
        result.pop("additionalProperties", None)
    return result


def kubernetes_check(path: Path) -> bool | None:
    try:
        import kubernetes_validate
    except ImportError:
        return None
    for item in objects(path):
        try:
            kubernetes_validate.validate(item, "1.33", strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            continue  # custom resources have no schema
        except (kubernetes_validate.ValidationError, ValueError):
            return True
    return False


def verdicts(folder: str, crd: Callable[[Path], bool | None]) -> Iterator[Verdict]:
    for path in sorted((CORPUS / folder).glob("*.yaml")):
        header = dict(HEADER.findall(path.read_text("utf-8")))
        findings = check_file(path, Hints())
        expected = [rule.strip() for rule in header.get("rule", "").split(",")]
        found = {f.rule for f in findings if f.level is not Level.NOTE and not f.suppressed}
        caught = bool(found & set(expected)) if folder == "bad" else bool(found)
        yield Verdict(
            name=path.stem,
            source=header.get("source", ""),
            rules=header.get("rule", ""),
            caught=caught,
            chart=chart_objects(path),
            crd=crd(path),
            kubernetes=kubernetes_check(path),
        )


def mark(caught: bool | None) -> str:
    return {True: "yes", False: "no", None: "–"}[caught]


def table(bad: list[Verdict], good: list[Verdict]) -> str:
    columns: dict[str, Callable[[Verdict], bool | None]] = {
        "penstock check": lambda j: j.caught,
        "chart schema alone": lambda j: j.chart,
        "CRD schema": lambda j: j.crd,
        "kubernetes-validate": lambda j: j.kubernetes,
    }
    lines = [
        "# Detection of bad configurations",
        "",
        "Generated by `benchmarks/corpus.py`. A dash: the tool does not apply to such a file, or "
        "was not installed.",
        "",
        f"| | {' | '.join(columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    for label, group in (("bad, detected", bad), ("good, false positives", good)):
        cells = []
        for value_of in columns.values():
            values = [value_of(j) for j in group]
            known = [value for value in values if value is not None]
            cells.append(f"{sum(known)} of {len(known)}" if known else "–")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", "| bad configuration | rule | " + " | ".join(columns) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for j in bad:
        name = f"[{j.name}]({j.source})" if j.source else j.name
        cells = [mark(value_of(j)) for value_of in columns.values()]
        lines.append(f"| {name} | {j.rules} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crd", type=Path, help="file with the CustomResourceDefinition")
    crd = crd_check(parser.parse_args().crd)
    bad, good = list(verdicts("bad", crd)), list(verdicts("good", crd))
    (RESULTS / "corpus.md").write_text(table(bad, good))
    write_result(
        "corpus",
        "uv run python benchmarks/corpus.py --crd FILE",
        {
            "bad": len(bad),
            "detected": sum(j.caught for j in bad),
            "missed": [j.name for j in bad if not j.caught],
            "good": len(good),
            "false_positives": [j.name for j in good if j.caught],
            "detected_by_chart_schema": sum(j.chart is True for j in bad),
            "detected_by_crd_schema": sum(j.crd is True for j in bad),
            "detected_by_kubernetes_validate": sum(j.kubernetes is True for j in bad),
        },
    )


if __name__ == "__main__":
    main()
