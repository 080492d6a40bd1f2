"""Finds router settings by replays, for `plan --router` and `plan`.

`settings.py` lists the combinations, `tuning.py` replays and confirms them, `report.py` prints the
result, and `graph_text.py` writes it into the graph.
"""
