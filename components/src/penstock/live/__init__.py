"""The live view of a running graph: what `penstock top` shows, in the terminal and the browser.

`source.py` follows a graph on this machine, `cluster` a release. `snapshot.py` makes the figures
from scrapes (`scrape.py`); `text.py` and `top.py` show them, and `page` serves them to a browser.
"""
