"""Rules of the files themselves: reading them reports these, before there is a deployment."""

from __future__ import annotations

from penstock.checks.finding import Level
from penstock.checks.rule import Rule, reported_by_reader, reported_by_run

UNREADABLE_FILE = Rule(
    id="PS001",
    title="the file cannot be read",
    level=Level.ERROR,
    cause="The path is missing, a directory, or no UTF-8 text.",
    effect="Nothing can be checked or deployed.",
    remedy="Name a graph YAML or a manifest.",
    source="penstock's loader",
    check=reported_by_reader,
)
INVALID_GRAPH = Rule(
    id="PS002",
    title="the graph is refused",
    level=Level.ERROR,
    cause="A key is unknown or doubled, a value has the wrong type, or two fields contradict.",
    effect="`helm install` and `penstock up` refuse the graph.",
    remedy="Mend the line that the finding names; components/graph-reference.md has all keys.",
    source="helm/penstock/values.schema.json and penstock.graph.model",
    check=reported_by_reader,
)
CHART_ERROR = Rule(
    id="PS003",
    title="the chart does not render",
    level=Level.ERROR,
    cause="The chart's own requirements refuse the combination of values.",
    effect="`helm install` ends with this message.",
    remedy="Change the field that the finding names.",
    source="helm/penstock/templates/_requirements.tpl",
    check=reported_by_reader,
)
INVALID_MANIFEST = Rule(
    id="PS004",
    title="the manifest cannot be understood",
    level=Level.ERROR,
    cause="It is no YAML, has a placeholder nobody filled in, lacks what the operator requires "
    "(a container `main`, an image, a command), or holds no DynamoGraphDeployment.",
    effect="The operator refuses it, or it runs something else than meant.",
    remedy="Mend it, or build the overlay it is a part of and check the result.",
    source="DGD CRD v1beta1 and v1alpha1; dynamo#10494, dynamo#4416",
    check=reported_by_reader,
)
UNUSED_SUPPRESSION = Rule(
    id="PS005",
    title="a silence that silences nothing",
    level=Level.WARNING,
    cause="`checks.suppress` names a rule that finds nothing here, or that does not exist.",
    effect="The next finding of that rule would go unseen.",
    remedy="Remove the entry.",
    source="penstock",
    check=reported_by_run,
)
UNEXPECTED_TYPE = Rule(
    id="PS006",
    title="a value of a type that nobody expects",
    level=Level.ERROR,
    cause="A field of the manifest holds a list or a map where the CRD has a word, or the "
    "other "
    "way round, so that a rule could not be judged.",
    effect="The API server refuses it.",
    remedy="Give the field the type that the CRD has.",
    source="DGD CRD v1beta1 and v1alpha1",
    check=reported_by_run,
)
