"""Rules about versions."""

from penstock.checks.rules.versions import image_versions, placeholders

MODULES = (image_versions, placeholders)
