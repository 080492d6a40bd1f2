"""A small Hugging Face model folder without weights, for models whose files are not available.

Built by `tools/build_tokenizer.py`. Token counts differ from any real model's.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
