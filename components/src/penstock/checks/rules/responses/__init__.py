"""Rules about responses and output parsers."""

from penstock.checks.rules.responses import responses

MODULES = (responses,)
