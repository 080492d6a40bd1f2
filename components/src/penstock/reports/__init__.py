"""Reports of the commands: data (`model.py`), printed as text or written as an HTML page.

`text.py` prints a report, and `html.py` writes one file with interactive charts that loads nothing
else. A command builds a `Report` and needs neither HTML nor widths of columns.
"""
