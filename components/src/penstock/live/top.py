"""The screen of `penstock top`: topology, latency, processes and events, with Textual."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from penstock.live.model import STOPPED, LiveSnapshot, WorkerView
from penstock.live.source import STATE_S
from penstock.live.text import (
    Column,
    columns_for,
    event_line,
    in_order,
    state,
    title_line,
    topology_lines,
    totals_lines,
)

Next = Callable[[], Awaitable[LiveSnapshot]]
EVENTS = 50
MARGIN = 2  # columns next to the text of a section
COLORS = {
    "ready": "green",
    "starting": "yellow",
    "draining": "cyan",
    "unhealthy": "red",
    "crashed": "red",
    "no metrics": "red",
}
KIND_COLORS = {"crash": "red", "hang": "red", "alert": "red", "ready": "green", "drain": "cyan"}
HELP = """\
s, S   sort by the next or previous column
r      reverse the order
↑ ↓    move in the table
Tab    move to the events, which scroll
?      close this help
q      quit

running, queued   requests in the engine, and waiting for it
KV                share of the KV cache in use
hits              prefix-cache hit rate
req/s             completed requests per second
TTFT, ITL         of a frontend, medians; of a worker, those of its last request
–                 not measured, or not exported by the engine

Rates and medians cover about the last 5 seconds."""


class Help(ModalScreen[None]):
    """The keys and the columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,escape,q", "dismiss", "close the help")
    ]
    CSS = """
    Help { align: center middle; }
    Help > Static { width: auto; max-width: 100%; border: round $accent; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        yield Static(HELP, markup=False)


class Top(App[None]):
    """``read`` returns the next snapshot; it is called every ``interval_s`` seconds."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Static { padding: 0 1; }
    #title { text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    #alerts { color: $error; display: none; }
    #alerts.shown { display: block; }
    DataTable { height: 1fr; margin: 1 0 0 0; }
    #events-title { text-style: bold; }
    #events-scroll { height: 8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("question_mark", "help", "Help"),
    ]

    def __init__(self, read: Next, interval_s: float = STATE_S) -> None:
        super().__init__()
        self._read, self._interval_s = read, interval_s
        self._latest: LiveSnapshot | None = None
        self._columns: tuple[Column, ...] = ()
        self._sorted_by: Column | None = None
        self._is_reversed = False

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="topology", markup=False)
        yield Static(id="totals", markup=False)
        yield Static(id="alerts", markup=False)
        table: DataTable[Text] = DataTable(id="processes", cursor_type="row", zebra_stripes=True)
        yield table
        yield Static("Events", id="events-title")
        with VerticalScroll(id="events-scroll"):
            yield Static(id="events", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        await self._refresh()
        self.set_interval(self._interval_s, self._refresh)

    async def _refresh(self) -> None:
        self._latest = await self._read()
        self._show()

    def on_resize(self) -> None:
        self._show()

    def action_sort(self, step: int) -> None:
        """By the order of the graph, then by each column."""
        choices = [None, *columns_for(self.size.width)]
        at = choices.index(self._sorted_by) if self._sorted_by in choices else 0
        self._sorted_by = choices[(at + step) % len(choices)]
        self._columns = ()  # the heading of the column changes
        self._show()

    def action_reverse(self) -> None:
        self._is_reversed = not self._is_reversed
        self._columns = ()
        self._show()

    def action_help(self) -> None:
        self.push_screen(Help())

    def _show(self) -> None:
        latest = self._latest
        if latest is None or not self.screen_stack:
            return
        base = self.screen_stack[0]
        if not base.query("#title"):
            return  # the application is starting or ending
        width = self.size.width - MARGIN
        base.query_one("#title", Static).update(title_line(latest))
        lines = topology_lines(latest, width)
        if latest.phase == STOPPED:
            lines = ["The graph is not up any more. Press q to quit, or start it again."]
        base.query_one("#topology", Static).update("\n".join(lines))
        base.query_one("#totals", Static).update("\n".join(totals_lines(latest)))
        alerts = base.query_one("#alerts", Static)
        alerts.set_class(bool(latest.alerts), "shown")
        alerts.update("\n".join(f"alert: {alert}" for alert in latest.alerts))
        self._show_processes(base.query_one(DataTable), latest)
        newest = [_event(event_line(e), e.kind) for e in reversed(latest.events[-EVENTS:])]
        base.query_one("#events", Static).update(Text("\n").join(newest))

    def _show_processes(self, table: DataTable[Text], latest: LiveSnapshot) -> None:
        workers = in_order(latest.workers, self._sorted_by, is_reversed=self._is_reversed)
        visible = columns_for(self.size.width)
        names = [worker.name + str(worker.pid) for worker in workers]
        if visible != self._columns or names != [key.value for key in table.rows]:
            row = table.cursor_row
            table.clear(columns=visible != self._columns)
            if visible != self._columns:
                for column in visible:
                    table.add_column(self._heading(column), key=column.title)
                self._columns = visible
            for name, worker in zip(names, workers, strict=True):
                table.add_row(*(_cell(column, worker) for column in visible), key=name)
            table.move_cursor(row=min(row, len(names) - 1))
            return
        for name, worker in zip(names, workers, strict=True):
            for column in visible:
                cell = _cell(column, worker)
                if cell != table.get_cell(name, column.title):
                    table.update_cell(name, column.title, cell, update_width=True)

    def _heading(self, column: Column) -> Text:
        mark = (" ▼" if self._is_reversed else " ▲") if column is self._sorted_by else ""
        return Text(column.title + mark, justify=_justify(column))


def _cell(column: Column, worker: WorkerView) -> Text:
    style = COLORS.get(state(worker), "") if column.title == "state" else ""
    return Text(column.text(worker), style=style, justify=_justify(column))


def _justify(column: Column) -> Literal["left", "right"]:
    return "right" if column.is_number else "left"


def _event(line: str, kind: str) -> Text:
    return Text(line, style=KIND_COLORS.get(kind, ""), no_wrap=True, overflow="ellipsis")
