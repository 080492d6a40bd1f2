"""From a graph or any DGD to a `Deployment`, the typed view that all commands share.

`source.py` decides what a file is, `render.py` renders the chart, `read.py` reads manifests, and
`shell` interprets their launch scripts.
"""
