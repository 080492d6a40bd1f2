"""Rules about versions."""

from penstock.checks.rules.versions import image_versions

MODULES = (image_versions,)
