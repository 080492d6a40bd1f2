"""Recommends a graph for a model, a GPU budget, a workload and an SLO, from replays.

`planning.py` runs all steps: `space.py` lists candidates, `estimate.py` estimates them from engine
step times, `search.py` replays the best with `trials.py`, and `routing.py` tries router settings.
`starting_graph.py` chooses by fixed rules, for `init`.
"""
