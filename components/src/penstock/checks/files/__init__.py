"""The file that a finding is about: where a setting is in it, and how to paste a fix into it."""

from penstock.checks.files.checked_file import CheckedFile, checked_file
from penstock.checks.files.place import Place

__all__ = ["CheckedFile", "Place", "checked_file"]
