"""Rules about versions."""

from penstock.checks.rules.versions import (
    image_versions,
    known_issues,
    placeholders,
    published_tags,
)

MODULES = (image_versions, known_issues, placeholders, published_tags)
