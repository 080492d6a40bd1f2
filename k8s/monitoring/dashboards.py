"""Generate dashboards/*.json from operators.py and pools.py; --check reports stale files.

uv run --with 'grafana-foundation-sdk==1769699998!10.1.0' python k8s/monitoring/dashboards.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.common import TooltipDisplayMode as Tooltip
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync as Cursor
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.dashboard import VariableRefresh as Refresh
from operators import OPERATORS
from panels import Panel, Row
from pools import POOLS

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(
    type_val="prometheus", uid="${datasource}"
)  # selectable: no fixed uid of a Grafana
HEIGHT = 8


def panel(definition: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(definition.title)
        .description(definition.text)
        .unit(definition.unit)
        .datasource(SOURCE)
        .span(definition.width)
        .height(HEIGHT)
        .min(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(Tooltip.MULTI))
    )
    for letter, query in zip("ABCDEFGH", definition.queries, strict=False):
        built = built.with_target(
            prometheus.Dataquery()
            .datasource(SOURCE)
            .expr(query.expression)
            .legend_format(query.legend)
            .ref_id(letter)
        )
    return built


def query_variable(name: str, label: str, query: str, *, multiple: bool) -> dashboard.QueryVariable:
    """A variable whose values come from Prometheus."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(Refresh.ON_TIME_RANGE_CHANGED)
        .multi(multiple)
        .include_all(multiple)
    )


def board(
    uid: str, title: str, text: str, rows: tuple[Row, ...], *, multiple: bool
) -> dashboard.Dashboard:
    """``multiple``: whether several graphs and namespaces can be selected at once."""
    ready = "dynamo_frontend_model_ready"
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(text)
        .tags(["penstock", "dynamo"])
        .editable()
        .tooltip(Cursor.CROSSHAIR)
        .refresh("30s")
        .time("now-3h", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .with_variable(
            query_variable(
                "namespace", "Namespace", f"label_values({ready}, namespace)", multiple=multiple
            )
        )
        .with_variable(
            query_variable(
                "graph",
                "Graph",
                f'label_values({ready}{{namespace=~"$namespace"}}, app_kubernetes_io_instance)',
                multiple=multiple,
            )
        )
    )
    if not multiple:
        # A single value, so that no query sums over prefill and decode.
        pool = dashboard.CustomVariable("pool").label("Pool").multi(False).include_all(False)
        built = built.with_variable(pool.values("decode,prefill,worker : worker|decode"))
    for row in rows:
        built = built.with_row(dashboard.Row(row.title))
        for definition in row.panels:
            built = built.with_panel(panel(definition))
    return built


def boards() -> dict[str, dashboard.Dashboard]:
    return {
        "operators.json": board(
            "penstock-operators",
            "penstock: graphs",
            "All graphs: availability, objectives, and where to look for causes.",
            OPERATORS,
            multiple=True,
        ),
        "pools.json": board(
            "penstock-pools",
            "penstock: one pool",
            "One pool of one graph: throughput, KV cache, KV transfer and its engine.",
            POOLS,
            multiple=False,
        ),
    }


def main(arguments: list[str]) -> int:
    stale = []
    for name, built in boards().items():
        text = JSONEncoder(sort_keys=True, indent=1).encode(built.build()) + "\n"
        path = FOLDER / name
        if arguments != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print(f"stale: {', '.join(stale)}. Fix: Run `python k8s/monitoring/{Path(__file__).name}`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
