"""An API gateway in front of graphs: manifests for Envoy Gateway, or an Envoy on this machine.

Start with `policy.py`: it decides every number once, and both outputs render it.
"""
