"""`penstock gateway shift`: move the requests from one release to another in steps, and back if the
new release is worse.

`counts.py` reads what both have served, `comparison.py` compares it, `weights.py` edits the gateway
file, and `run.py` takes the steps.
"""
