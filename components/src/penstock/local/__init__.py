"""`penstock up`: one graph on this machine, from start to stop, and the commands on it.

`up.py` prepares (`prepare.py`, `adapt.py`) and supervises: `supervisor.py` carries out the actions
that the pure function in `reconcile.py` chooses. `state.py` locks the graph's folder; `control.py`
reads it for `status`, `scale` and `down`. `gpus` assigns GPUs, `request_adapter` checks requests.
"""
