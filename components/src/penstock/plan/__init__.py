"""Recommends a graph for a model, a GPU budget, a workload and an SLO, from replays.

`planning.py` runs the search: `space.py` lists candidates, `estimate.py` estimates them from engine
step times, `choose.py` and `confirm.py` replay the best, and `routing.py` tries router settings.
`starting_graph.py` chooses by fixed rules, for `init`.
"""
