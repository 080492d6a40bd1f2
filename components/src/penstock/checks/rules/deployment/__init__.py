"""Rules about the deployment manifest and how its processes are started."""

from penstock.checks.rules.deployment import (
    claims,
    crd,
    images,
    launch,
    manifest,
    models,
    operator,
    roles,
    webhook,
)

MODULES = (
    manifest,
    operator,
    roles,
    launch,
    images,
    models,
    webhook,
    claims,
    crd,
)
