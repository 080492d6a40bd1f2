"""Rules about the files themselves, which the reader or the run reports."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import Rule, reported_by_reader, reported_by_run, rule
from penstock.checks.version_range import KUBERNETES, PENSTOCK
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.shipped import page

UNREADABLE_FILE = Rule(
    id="PS001",
    title="the file cannot be checked",
    level=Level.ERROR,
    cause="The path does not exist, is not UTF-8 text, or contains neither a graph nor a "
    "DynamoGraphDeployment, such as a manifest of Deployments. It is an error so that a CI job "
    "with the wrong path fails.",
    effect="Nothing can be checked.",
    remedy="Pass the path of a graph, or of a manifest with a DynamoGraphDeployment, that is saved "
    "as UTF-8.",
    source="penstock's loader",
    versions=PENSTOCK,
    check=reported_by_reader,
)
INVALID_GRAPH = Rule(
    id="PS002",
    title="the graph is invalid",
    level=Level.ERROR,
    cause="A key is unknown or duplicated, a value has the wrong type, or two fields contradict "
    "each other.",
    effect="`helm install` and `penstock up` reject the graph.",
    remedy=f"Fix the line that the finding names; {page('graph')} lists all keys.",
    source="helm/penstock/values.schema.json and penstock.graph.model",
    versions=PENSTOCK,
    check=reported_by_reader,
)
CHART_ERROR = Rule(
    id="PS003",
    title="the chart does not render",
    level=Level.ERROR,
    cause="The chart's own requirements reject the combination of values.",
    effect="`helm install` fails with this message.",
    remedy="Change the field that the finding names.",
    source="helm/penstock/templates/_requirements.tpl",
    versions=PENSTOCK,
    check=reported_by_reader,
)
INVALID_MANIFEST = Rule(
    id="PS004",
    title="the manifest cannot be read",
    level=Level.ERROR,
    cause="It is not YAML, or lacks what the operator requires (a container `main`, an image). It "
    "is a note where only the image or the operator decides what runs, and a warning for a "
    "duplicate key of an engine's file, whose first value is lost. PS009 reports those of "
    "manifests, and PS909 reports placeholders.",
    effect="Kubernetes or the operator rejects the deployment, or other values than intended are "
    "used.",
    remedy="Fix the manifest, or build the overlay that it is a part of and check the result.",
    source="DGD CRD v1beta1 and v1alpha1; dynamo#10494, dynamo#4416",
    versions=PENSTOCK,
    check=reported_by_reader,
    other_levels=(Level.WARNING, Level.NOTE),
)
UNUSED_SUPPRESSION = Rule(
    id="PS005",
    title="suppression that suppresses nothing",
    level=Level.WARNING,
    cause="`checks.suppress` or a comment `# penstock: ignore` names a rule that reports nothing "
    "there, or that does not exist, or the comment gives no reason.",
    effect="The next finding of that rule would be suppressed unnoticed, or a finding that should "
    "be suppressed is not.",
    remedy="Remove the entry or the comment, or complete it.",
    source="penstock",
    versions=PENSTOCK,
    check=reported_by_run,
)


@rule(
    id="PS006",
    title="backendFramework is not a string",
    level=Level.ERROR,
    cause="`spec.backendFramework` is not a string, so the rules about it are skipped.",
    effect="The API server rejects the manifest.",
    remedy="Set `spec.backendFramework` to a string, such as `vllm`.",
    source="DGD CRD v1beta1 and v1alpha1",
    versions=KUBERNETES,
)
def unexpected_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    value = deployment.spec.get("backendFramework")
    if value is not None and not isinstance(value, str):
        yield RuleResult(
            location=Location("", "manifest", ("spec", "backendFramework")),
            message=f"spec.backendFramework must be a string, got {value!r}",
            fix=Fix(text="Set it to a string, such as `vllm`."),
        )
