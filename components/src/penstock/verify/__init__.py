"""`penstock verify`: check that a running deployment does what its graph declares.

It reads the OpenAI endpoint, the components' metrics and, where no metric exists, their logs, on a
laptop as on a cluster.
"""
