"""What is malformed about the Hugging Face ID of a model, such as `openai/gpt-oss-120b`.

The grammar is that of `validate_repo_id` in huggingface_hub: an optional organization and a name
of at most 96 characters, without `--` and `..`.
"""

from __future__ import annotations

import re

from penstock.text.names import visible

# Words between separators, none of which has two dots or two hyphens in a row.
_PART = r"\w+(?:(?:-(?:\.-)*\.?|\.(?:-\.)*-?)\w+)*".replace(r"\w", "[A-Za-z0-9_]")
_ID = rf"(?:{_PART}/)?{_PART}"
# For JSON schemas.
PATTERN = f"^{_ID}$"
LONGEST_NAME = 96
_HUB = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/+(?:models/+)?|hf://", re.IGNORECASE
)
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# What follows the ID in the URL of a page or of a file.
_OF_PAGE = re.compile(r"/+(?:tree|blob|resolve|raw|commit|discussions)(?:/.*)?$|[?#].*$")
GRAMMAR = "Write ORGANIZATION/NAME as on the Hugging Face Hub, such as `openai/gpt-oss-120b`."
OF_FOLDER = "Write the model's ID here, and the directory in `model.path`."


def model_id_problem(name: str) -> tuple[str, str] | None:
    """What is wrong with an ID, and the fix; None if it is well-formed."""
    if is_model_id(name):
        return None
    if found := _HUB.match(name):
        message = "is an address, not the ID of a model"
        return message, _write(_OF_PAGE.sub("", name[found.end() :]))
    if _OTHER_URL.match(name):
        return "is an address, not the ID of a model", GRAMMAR
    if name.startswith(("/", "./", "../", "~")) or (name.count("/") > 1 and not name.endswith("/")):
        return "is a path, not the ID of a model", OF_FOLDER
    if re.search(r"\s", name):
        joined = name.strip() if is_model_id(name.strip()) else "-".join(name.split())
        return "contains a space", _write(joined.replace("-/-", "/"))
    if not name.isprintable():
        return "contains an invisible character", _write(visible(name))
    if name.endswith("/"):
        return "ends with a slash", _write(name)
    return "is not the ID of a model", _write(name)


def is_model_id(name: str) -> bool:
    """Whether the Hugging Face Hub accepts the ID."""
    is_short = len(name.rpartition("/")[2]) <= LONGEST_NAME
    return is_short and not name.endswith(".git") and re.fullmatch(_ID, name) is not None


def _write(name: str) -> str:
    """The fix that writes the name without what surrounds it, if that is an ID."""
    plain = name.strip("/").removesuffix(".git")
    return f"Write `{plain}`." if is_model_id(plain) else GRAMMAR
