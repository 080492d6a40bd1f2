"""`penstock verify`: the proof that a running deployment does what its graph says.

Its inputs are the OpenAI endpoint, the components' metrics and, for what no metric tells, their
logs: the same on a laptop and on a cluster.
"""
