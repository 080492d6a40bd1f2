"""A small Hugging Face model folder without weights, for where a model's files are not here.

Made by `python -m penstock.tokenizer.build`; token counts differ from any real model's.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
