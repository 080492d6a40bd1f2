"""Rules about versions."""

from penstock.checks.rules.versions import image_versions, placeholders, published_tags

MODULES = (image_versions, placeholders, published_tags)
