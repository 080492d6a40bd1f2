// Draws the charts of a report: those that are visible at once, others when they are opened.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const config = {
    displaylogo: false,
    responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const plots = [...document.querySelectorAll(".plot")];
  const isShown = (plot) => !plot.closest("details:not([open])");
  const draw = (plot) => {
    if (plot.dataset.drawn || !isShown(plot)) return;
    plot.dataset.drawn = "yes";
    const { data, layout, group } = charts[Number(plot.dataset.chart)];
    Plotly.newPlot(plot, data, layout, config);
    if (group) plot.on("plotly_relayout", (change) => follow(plot, group, change));
  };
  // A range of time that is selected in one chart is that of all charts of its group.
  let isFollowing = false;
  const follow = (source, group, change) => {
    const isAll = change["xaxis.autorange"];
    if (isFollowing || !(isAll || "xaxis.range[0]" in change)) return;
    const range = isAll
      ? { "xaxis.autorange": true }
      : { "xaxis.range": [change["xaxis.range[0]"], change["xaxis.range[1]"]] };
    isFollowing = true;
    const members = plots.filter(
      (plot) =>
        plot !== source && plot.dataset.drawn && charts[Number(plot.dataset.chart)].group === group,
    );
    Promise.all(members.map((plot) => Plotly.relayout(plot, range))).finally(() => {
      isFollowing = false;
    });
  };
  plots.forEach(draw);
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", () => details.querySelectorAll(".plot").forEach(draw));
  }
  // A printed page is narrower than the window, and shows all charts.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => (details.open = true));
    plots.forEach(draw);
    for (const plot of plots) {
      // Two rows of charts fit a page, and a chart with many rows fits one page.
      const full = parseInt(plot.dataset.height);
      const height = full <= 360 ? 280 : full <= 440 ? 330 : Math.min(full, 620);
      const size = full > height && full > 440 ? { "yaxis.tickfont.size": 9 } : {};
      plot.style.height = `${height}px`;
      Plotly.relayout(plot, { width: 444, height, autosize: false, ...size });
    }
  });
  addEventListener("afterprint", () => {
    closed.forEach((details) => (details.open = false));
    for (const plot of plots) {
      plot.style.height = `${plot.dataset.height}px`;
      const size = { width: null, height: null, "yaxis.tickfont.size": null };
      Plotly.relayout(plot, { ...size, autosize: true });
    }
  });
  document.documentElement.dataset.ready = "yes";
})();
