"""A Dynamo worker that replays token sequences: for what neither a mocker nor random weights write.

`python -m penstock.scripted --help`; it is no engine of a graph, but what proves Dynamo's parsers.
"""
