"""An HTTP layer in front of a local frontend, in the frontend's own process.

It sets what an engine cannot default, and rejects what an engine would ignore. Its modules import
nothing of penstock: a frontend of another Dynamo version runs in an environment without it.
"""
