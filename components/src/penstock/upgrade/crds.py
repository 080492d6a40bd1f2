"""Dynamo's CRDs on a cluster, where an interrupted upgrade leaves a part of them, or in a file; and
which fields of an upgraded graph the CRD does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from penstock.cluster.api import Api
from penstock.cluster.connect import SELECT
from penstock.cluster.current_state import CRD_GROUP, CRD_VERSION, OF_OPERATOR
from penstock.cluster.current_state import GRAPHS as GRAPHS_RESOURCE
from penstock.cluster.workloads import DGD
from penstock.errors import ClusterError, GraphError, InputError, Problem
from penstock.files import page
from penstock.graph.load import parse_graph
from penstock.graph.text_file import read_text_file
from penstock.helm import ReleaseTarget
from penstock.manifests.fields import Schema, specs_of, unknown_fields
from penstock.manifests.source import render_graph
from penstock.strict_yaml.loader import SafeLoader
from penstock.strict_yaml.places import place_of
from penstock.upgrade.report import Upgrade

Definition = Mapping[str, Any]
GRAPHS = f"{GRAPHS_RESOURCE}.{CRD_GROUP}"
RESOURCES = sorted((GRAPHS_RESOURCE, *OF_OPERATOR, "dynamoworkermetadatas"))
CRDS = tuple(f"{name}.{CRD_GROUP}" for name in RESOURCES)
API_VERSION = CRD_VERSION.removeprefix(f"{CRD_GROUP}/")
OTHER_VERSION = (
    f"Use the CRDs of an operator that serves {CRD_VERSION}: the chart writes no other version."
)
# The chart writes the field, and no key of the graph sets it.
TAGGED = (
    "Use newer CRDs, or an image with a tag such as 1.6.1: for other tags, including pre-releases, "
    "the chart sets this field."
)
SELECT_HERE = "Set KUBECONFIG or --kubeconfig, or omit --cluster."
FIX = "Upgrade the operator's chart again with upgradeCRD: true, and wait until its pod is ready."


def connect(target: ReleaseTarget) -> Api:
    """Connect as `Api.connect` does, with a fix for this verb where no cluster is configured."""
    try:
        return Api.connect(target)
    except ClusterError as error:
        problems = [replace(p, fix=SELECT_HERE) if p.fix == SELECT else p for p in error.problems]
        raise ClusterError(*problems) from None


def require_crds(api: Api, upgrade: Upgrade) -> None:
    """ClusterError when a CRD of the cluster is missing, not in use or without a field of the
    upgraded graph, with every problem."""
    definitions = {name: api.definition(name) for name in CRDS}
    problems = [*crd_problems(definitions)]
    if not problems and (graphs := definitions[GRAPHS]) is not None:
        problems = [*field_problems(specs_of(graphs), upgrade, "the cluster's CRD", FIX)]
    if problems:
        raise ClusterError(*problems)


def require_fields(file: Path, upgrade: Upgrade) -> None:
    """GraphError when the CRD in a file does not have a field of the upgraded graph.

    InputError when the file cannot be read or has no CRD of graphs.
    """
    fix = "Remove the field from the graph, or see the new version's release notes."
    problems = [*field_problems(read_fields(file), upgrade, str(file), fix)]
    if problems:
        raise GraphError(*problems)


def read_fields(file: Path) -> Mapping[str, Schema]:
    """The fields of a graph by apiVersion, from a file with its CRD or with several CRDs, as YAML
    or as a list of kubectl. Raises InputError."""
    try:
        documents = [*yaml.load_all(read_text_file(file), SafeLoader)]
        items = [i for d in documents if d for i in d.get("items") or [d]]
        definition = next(i for i in items if i["metadata"]["name"] == GRAPHS)
        return specs_of(definition)
    except StopIteration:
        message = f"has no CRD {GRAPHS}"
    except yaml.YAMLError as error:
        message = f"is not valid YAML: {str(error).splitlines()[0]}"
    except (AttributeError, KeyError, TypeError):
        message = "is not a CRD, or not a complete one"
    fix = f"Write it with `kubectl get crd {GRAPHS} -o yaml` on a cluster with the new operator."
    raise InputError(message, file=str(file), fix=fix)


def field_problems(
    specs: Mapping[str, Schema], upgrade: Upgrade, source: str, fix: str
) -> Iterator[Problem]:
    """The fields that the chart writes for the upgraded graph and the CRD does not have."""
    for manifest in render_graph(parse_graph(upgrade.after, upgrade.source)).objects:
        if manifest["kind"] != DGD:
            continue
        if manifest["apiVersion"] not in specs:
            message = f"{source} serves {', '.join(specs) or 'no version'}"
            yield Problem(place=manifest["apiVersion"], message=message, fix=OTHER_VERSION)
        for field in unknown_fields(manifest, specs):
            near = f" (it has {field.near})" if field.near else ""
            message = f"{source} has no such field{near}: the graph needs it"
            needs_tag = field.path[-1] == "runtimeVersionOverride"
            yield Problem(
                place=place_of(field.path), message=message, fix=TAGGED if needs_tag else fix
            )


def crd_problems(definitions: Mapping[str, Definition | None]) -> Iterator[Problem]:
    """The problems of the definitions by name; None: it does not exist."""
    missing = [name for name, definition in definitions.items() if definition is None]
    if len(missing) == len(definitions):
        message = "Dynamo's CRDs are not installed"
        yield Problem(message=message, fix=f"Install the operator first: see {page('cluster')}.")
        return
    for name, definition in definitions.items():
        if definition is None:
            count = f"{len(definitions) - len(missing)} of {len(definitions)}"
            message = f"is missing: {count} of Dynamo's CRDs are installed"
            yield Problem(place=f"CRD {name}", message=message, fix=FIX)
            continue
        conditions = (definition.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            reason = next((c.get("message") for c in conditions if c["status"] == "False"), None)
            message = f"is not established{f': {reason}' if reason else ''}"
            yield Problem(place=f"CRD {name}", message=message, fix=FIX)
        served = [v["name"] for v in definition["spec"]["versions"] if v.get("served")]
        if name == GRAPHS and API_VERSION not in served:
            message = f"serves {', '.join(served) or 'no version'}, and not {API_VERSION}"
            yield Problem(place=f"CRD {name}", message=message, fix=FIX)
