// Draws the plots of a report from the numbers that the page carries, in the colours of its theme.
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("kitae-report").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const PRINTED = { width: 680, height: 300 };
  const COLOURS = 8;
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const drawn = new Set();
  let printing = false;

  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function colour(trace, place, alone) {
    const number = alone ? place : trace.run;
    return ink(`--c${number % COLOURS}`);
  }

  function line(trace, place, alone) {
    const turn = alone ? 0 : Math.floor(trace.run / COLOURS);
    const dash = trace.dash ? "dash" : DASHES[turn % DASHES.length];
    return { width: trace.points ? 1 : 1.6, dash };
  }

  function curve(chart, trace, place) {
    const runs = new Set(chart.traces.map((one) => one.run));
    const alone = runs.size === 1;
    const shade = colour(trace, place, alone);
    const found = {
      type: "scatter",
      name: trace.name,
      x: trace.x,
      y: trace.y,
      mode: trace.points || trace.x.length < 2 ? "lines+markers" : "lines",
      line: { ...line(trace, place, alone), color: shade },
      marker: { size: 7, color: shade, symbol: trace.points ? "diamond" : "circle" },
      hovertemplate: `%{y${chart.share ? ":.2%" : ""}}`,
    };
    if (trace.low && trace.high) {
      found.error_y = {
        type: "data",
        symmetric: false,
        array: trace.high.map((value, at) => (value === null ? 0 : value - trace.y[at])),
        arrayminus: trace.low.map((value, at) => (value === null ? 0 : trace.y[at] - value)),
        color: shade,
      };
    }
    return found;
  }

  function heat(chart) {
    return [{
      type: "heatmap",
      x: chart.xs,
      y: chart.names,
      z: chart.values,
      zmin: 0,
      zmax: 1,
      colorscale: "Viridis",
      colorbar: { tickformat: ".0%", thickness: 12, outlinewidth: 0, tickfont: { color: ink("--soft") } },
      hovertemplate: "%{y}, %{x}: %{z:.0%}<extra></extra>",
    }];
  }

  function axes(chart) {
    const common = {
      gridcolor: ink("--grid"),
      linecolor: ink("--line"),
      zerolinecolor: ink("--grid"),
      tickfont: { color: ink("--soft") },
      exponentformat: "power",
    };
    // Only the left margin follows its labels: with the lower one, too, each change could call for another.
    const x = { ...common, tickangle: 0, title: { text: chart.x, font: { color: ink("--soft") } } };
    const y = { ...common, automargin: "left", title: { text: chart.y, font: { color: ink("--soft") } } };
    if (chart.dates || chart.kind === "heat") x.type = "date";
    if (!x.type) Object.assign(x, { separatethousands: true, exponentformat: "SI" });
    if (chart.doubling) Object.assign(x, { type: "log", dtick: Math.log10(2), tickformat: "d" });
    if (chart.share) Object.assign(y, { tickformat: ".0%", rangemode: "tozero" });
    if (chart.units) Object.assign(y, { tickformat: "~s", rangemode: "tozero" });
    if (chart.decades) Object.assign(y, { type: "log", tickformat: "~g" });
    if (chart.kind === "heat") y.type = "category";
    return { xaxis: x, yaxis: y };
  }

  function marks(chart) {
    const shown = chart.marks || [];
    return {
      shapes: shown.map(([x]) => ({
        type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: ink("--soft"), width: 1, dash: "dot" },
      })),
      annotations: shown.map(([x, words], place) => ({
        x, y: 1, yref: "paper", text: escaped(words), showarrow: false, yanchor: "top", xanchor: "left",
        yshift: -14 * (place % 3), font: { size: 11, color: ink("--soft") },
      })),
    };
  }

  // Plotly reads some tags in texts as markup; here they are text.
  function escaped(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function layout(chart, size) {
    return {
      ...axes(chart),
      ...marks(chart),
      ...size,
      autosize: !size,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: ink("--ink"), size: 12 },
      margin: { l: 56, r: 16, t: 12, b: 44 },
      showlegend: chart.kind === "lines" && chart.traces.length > 1,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      hovermode: chart.kind === "heat" ? "closest" : "x unified",
      hoverlabel: { bgcolor: ink("--panel"), bordercolor: ink("--line"), font: { color: ink("--ink") } },
    };
  }

  function draw(place, size) {
    const chart = report.charts[place.dataset.chart];
    const named = (trace) => ({ ...trace, name: escaped(trace.name) });
    const traces = chart.kind === "heat" ? heat(chart) : chart.traces.map((one, at) => curve(chart, named(one), at));
    drawn.add(place);
    return Plotly.react(place, traces, layout(chart, size), {
      responsive: !size,
      displaylogo: false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
  }

  const places = [...document.querySelectorAll(".plot")];
  const visible = (place) => place.offsetParent !== null;
  const redraw = () => places.filter((one) => drawn.has(one) || visible(one)).forEach((one) => draw(one, printing ? PRINTED : null));

  function theme(name) {
    root.dataset.theme = name;
    redraw();
  }

  let chosen = null;
  const current = () => chosen || (dark.matches ? "dark" : "light");

  document.getElementById("theme").addEventListener("click", () => {
    chosen = current() === "dark" ? "light" : "dark";
    theme(chosen);
  });
  dark.addEventListener("change", () => theme(current()));

  // What is folded has no size: it is drawn once it is opened.
  document.addEventListener("toggle", (event) => {
    if (printing || !event.target.open) return;
    event.target.querySelectorAll(".plot").forEach((place) => visible(place) && draw(place, null));
  }, true);

  // On paper everything is open, light, and as wide as the page.
  let folded = [];
  function begin() {
    if (printing) return;
    printing = true;
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((one) => { one.open = true; });
    theme("light");
  }
  function end() {
    if (!printing) return;
    printing = false;
    folded.forEach((one) => { one.open = false; });
    theme(current());
  }
  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? begin() : end()));

  theme(current());
  root.dataset.drawn = String(drawn.size);
})();
