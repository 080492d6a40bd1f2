"""One gateway YAML → routes and policies for Envoy Gateway, and the same as a local Envoy.

Read `policy.py` first: every number is decided there, once, and both outputs only spell it.
"""
