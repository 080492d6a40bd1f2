"""`penstock drill`: inject faults under load; report failed requests and missing recoveries.

`run.py` sends requests (`traffic.py`) and injects faults (`faults.py`, `inject.py`) to a copy of
the graph or, with `cluster.py`, to a release. `evaluate.py` computes the verdict from the recorded
history.
"""
