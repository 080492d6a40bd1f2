"""The graph YAML: its model (`model.py`), its loader (`load.py`), and what is derived from it.

`edit.py` changes a file and keeps its text, `origin.py` finds the line that gives a rendered value,
and `generate.py` writes the schema, the reference and the chart's values.
"""
