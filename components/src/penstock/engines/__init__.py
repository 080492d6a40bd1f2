"""What the engines accept and do: their flags, settings, defaults and versions, without a GPU.

`flags.py`, `settings.py` and the tables of `data` answer at once, for `check`; `parsers.py` runs
Dynamo's own parsers, for `up`; `dry_run` runs the engines' own code. `table.py` lists the module of
each engine, which says how the mocker imitates it.
"""
