"""`penstock bench shadow A B`: sends the same requests to two endpoints and compares the responses.

`run.py` sends them, `compare.py` finds the differences of two responses, and `verdict.py` decides
which differences are findings.
"""
