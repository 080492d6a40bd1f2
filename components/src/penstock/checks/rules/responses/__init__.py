"""Rules about responses and output parsers."""

from penstock.checks.rules.responses import responses, structured_output, vision

MODULES = (responses, structured_output, vision)
