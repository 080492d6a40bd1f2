"""Rules about responses and output parsers."""

from penstock.checks.rules.responses import model_parsers, responses, structured_output, vision

MODULES = (responses, model_parsers, structured_output, vision)
