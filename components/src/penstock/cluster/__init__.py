"""Releases on a cluster: diff, apply, rollback, status and uninstall, through Helm and the API.

`change.py` compares what is installed with what is desired and writes it, `rollout.py` follows it,
and `diagnose.py` explains a failure. `api.py` is the only client of the API server;
`rights.py` lists what each command needs.
"""
