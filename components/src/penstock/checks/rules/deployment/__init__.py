"""Rules about the deployment manifest and how its processes are started."""

from penstock.checks.rules.deployment import launch, manifest, operator, roles

MODULES = (
    manifest,
    operator,
    roles,
    launch,
)
