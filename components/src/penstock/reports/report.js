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
    const { data, layout } = charts[Number(plot.dataset.chart)];
    Plotly.newPlot(plot, data, layout, config);
  };
  plots.forEach(draw);
  for (const one of document.querySelectorAll("details")) {
    one.addEventListener("toggle", () => one.querySelectorAll(".plot").forEach(draw));
  }
  // A printed page is narrower than the window, and shows all charts.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => (one.open = true));
    plots.forEach(draw);
    for (const plot of plots) {
      const width = plot.closest(".wide") ? 930 : 444;
      Plotly.relayout(plot, { width, autosize: false });
    }
  });
  addEventListener("afterprint", () => {
    closed.forEach((one) => (one.open = false));
    for (const plot of plots) Plotly.relayout(plot, { width: null, autosize: true });
  });
  document.documentElement.dataset.ready = "yes";
})();
