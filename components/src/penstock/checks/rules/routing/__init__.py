"""Rules about request routing."""

from penstock.checks.rules.routing import kv_events, planes, router, worker_settings

MODULES = (
    router,
    kv_events,
    planes,
    worker_settings,
)
