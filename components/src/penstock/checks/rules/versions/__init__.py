"""Rules about versions."""

from penstock.checks.rules.versions import (
    image_contents,
    image_versions,
    known_issues,
    placeholders,
    published_tags,
)

MODULES = (image_versions, image_contents, known_issues, placeholders, published_tags)
