"""`penstock drill`: faults under load, evaluated only by what the clients observe.

`run.py` sends requests (`traffic.py`) and injects faults (`faults.py`, `inject.py`) to a copy of
the graph or, with `cluster_run.py`, to a release. `evaluate.py` is a pure function of the history.
"""
