"""Rules about request routing."""

from penstock.checks.rules.routing import kv_events, planes, router

MODULES = (
    router,
    kv_events,
    planes,
)
