"""`penstock status --watch`: the status again and again, in place on a terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cluster.api import AwayError
from penstock.cluster.status import Looker, as_text

EVERY_S = 2.0


def watch(looker: Looker) -> int:
    """Until Ctrl-C. Raises ClusterError, but for an API server that is away: it may come back."""
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                text = as_text(looker.look())
            except AwayError as error:
                text = str(error)
            if console.is_terminal:
                live.update(Text(text), refresh=True)
            else:
                print(text, flush=True)
            time.sleep(EVERY_S)
