"""Rules about updates and scaling."""

from penstock.checks.rules.scaling import autoscaling, rollout

MODULES = (
    rollout,
    autoscaling,
)
