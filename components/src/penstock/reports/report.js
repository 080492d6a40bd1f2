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
      // Two rows of charts fit a page, and a chart with many rows fits one page.
      const own = parseInt(plot.dataset.height);
      const height = own <= 360 ? 280 : own <= 440 ? 330 : Math.min(own, 620);
      const size = own > height && own > 440 ? { "yaxis.tickfont.size": 9 } : {};
      plot.style.height = `${height}px`;
      Plotly.relayout(plot, { width: 444, height, autosize: false, ...size });
    }
  });
  addEventListener("afterprint", () => {
    closed.forEach((one) => (one.open = false));
    for (const plot of plots) {
      plot.style.height = `${plot.dataset.height}px`;
      const size = { width: null, height: null, "yaxis.tickfont.size": null };
      Plotly.relayout(plot, { ...size, autosize: true });
    }
  });
  document.documentElement.dataset.ready = "yes";
})();
