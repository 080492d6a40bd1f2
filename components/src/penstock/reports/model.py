"""A report as data: what it is about, its verdicts, figures, tables, charts and notes.

A command builds one `Report`; `text.py` prints it, and `html.py` writes it as a page. Cells and
figures are texts with their unit, so both show the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

GOOD, BAD, LIMIT, GRAY = "#009e73", "#d55e00", "#cc3311", "#808a94"
HEIGHT, TALL, ROW = 340, 420, 24  # pixels of a chart, and of a row of one with names on its axis
TIME = "time"  # the group of the charts whose time ranges are the same


class State(StrEnum):
    """The state of a verdict is also the name of its style in `report.css`."""

    MET = "met"
    MISSED = "missed"
    INCOMPLETE = "incomplete"
    NONE = "none"


@dataclass(frozen=True)
class Verdict:
    state: State
    text: str


@dataclass(frozen=True)
class Figure:
    """One key figure. The value has its unit."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Figures:
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Table:
    """The last cell of a row with fewer cells than headings takes the rest."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    main: Sequence[str] = ()
    """Headings of the columns that a narrow terminal shows after the first; empty for all."""


@dataclass(frozen=True)
class Notes:
    """A list; lines that begin with a space are further in."""

    lines: Sequence[str]


class Mark(StrEnum):
    """How the values of a series are drawn."""

    LINE = "line"
    DOTTED_LINE = "a line with its points"
    STEPS = "values that stay until the next one"
    POINTS = "points"
    ROWS = "horizontal bars, one in each named row"
    STACK = "vertical bars on top of each other"


@dataclass(frozen=True)
class Axis:
    title: str
    unit: str = ""
    """Unit of the values, in the title of the axis and on hover."""
    _: KW_ONLY
    is_logarithmic: bool = False
    limits: tuple[float, float] | None = None
    """Ends of the axis. None: it begins at 0 and ends at the highest value."""
    ticks: Sequence[float] = ()
    """Values with a label. Empty: Plotly chooses them."""
    names: Sequence[str] = ()
    """Names of rows 0, 1, …, the first on top. Empty: it is an axis of numbers."""
    is_free: bool = False
    """Whether it may begin above 0 and end below it."""


@dataclass(frozen=True, kw_only=True)
class Series:
    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    mark: Mark = Mark.LINE
    style: int | None = None
    """Number of its color, dash and symbol. None: its position in the chart."""
    color: str = ""
    symbols: Sequence[str] = ()
    """One symbol for all points, or one for each point. Empty: the style decides."""
    size: int = 11
    texts: Sequence[str] = ()
    """Text of each point, which is shown on hover."""
    labels: Sequence[str] = ()
    """Short text of each point, which is shown next to it."""
    errors: Sequence[tuple[float, float]] = ()
    """How far each x may be lower and higher."""
    hover: str = ""
    """Template of Plotly. Empty: the values with the units of the axes."""
    is_in_legend: bool = True


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A line, such as that of the SLO: across the chart, or across one row."""

    name: str
    at: float
    is_vertical: bool = False
    row: int | None = None


@dataclass(frozen=True, kw_only=True)
class Band:
    """A shaded range of x."""

    begin: float
    end: float
    text: str = ""
    """Shown on hover of a mark above the band. Empty: the band has no mark."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    limits: Sequence[Limit] = ()
    bands: Sequence[Band] = ()
    bands_name: str = ""
    height: int = HEIGHT
    """Height in pixels."""
    group: str = ""
    """Charts of one group show the same range of x."""


@dataclass(frozen=True)
class Foldable:
    """Charts that are hidden until the reader opens them, if there are many of them."""

    title: str
    charts: Sequence[Chart]
    is_open: bool


Part = str | Chart | Table | Notes | Figures | Foldable
"""A text is a paragraph."""


@dataclass(frozen=True)
class Section:
    title: str
    parts: Sequence[Part]
    is_detail: bool = False
    """Whether only the page shows it."""


@dataclass(frozen=True, kw_only=True)
class Report:
    kind: str
    """Such as `Benchmark`."""
    title: str
    """What was measured or simulated."""
    subtitle: str
    """Where the figures come from, such as `measured`."""
    verdicts: Sequence[Verdict] = ()
    sections: Sequence[Section]


def notes_of(lines: Iterable[str]) -> list[Part]:
    """The list is left out if it has no lines."""
    texts = list(lines)
    return [Notes(texts)] if texts else []


def height_of(rows: int) -> int:
    """Height of a chart with names on its axis, in pixels."""
    return 110 + ROW * max(rows, 3)
