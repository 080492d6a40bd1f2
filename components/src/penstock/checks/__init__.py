"""`penstock check`: find errors and risks in a graph or a manifest before it uses a GPU.

`run.py` applies the rules. `rules` has the rows of each topic, `rows` compiles them, `files` maps
findings to lines, `suppress.py` and `baseline.py` hide findings, and `report.py` prints them.
"""
