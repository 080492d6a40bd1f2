"""Replay of a deployment in virtual time: Dynamo's router, mock engines, measured kernels.

`replayable.py` builds the simulator's form of a deployment with step times (`timing.py`),
`replay.py` runs it in the environment `sim` and caches the result, `metrics.py` computes the
figures, and `study.py` runs several loads and seeds.
"""
