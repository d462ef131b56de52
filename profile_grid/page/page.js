// Glue between the page and its two libraries: starts a table or figure when it comes near the window, applies the filters.
import DataTable, { set_or_remove_dark_class } from "datatables";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const all = (selector) => [...document.querySelectorAll(selector)];
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const names = read("names");
const themes = read("themes");
const filters = document.getElementById("filters");
const dark = matchMedia("(prefers-color-scheme: dark)");
const tables = [];
const drawn = new Set();

// ---- tables
const number = (options) => (value) => value.toLocaleString("en", options);
const shown = {
  text: escaped,
  flag: escaped,
  plain: escaped,
  number: number({ maximumSignificantDigits: 4 }),
  share: number({ style: "percent", maximumFractionDigits: 2 }),
  kernel: (n) => `<details><summary>${escaped(names.short[n])}</summary><code>${escaped(names.full[n])}</code></details>`,
};
const cell = (kind) => (value, type) => {
  if (value === null) return type === "display" ? "–" : "";
  if (type === "display") return shown[kind](value);
  return kind === "kernel" ? names.full[value] : value;
};

function startTable(element) {
  const { columns, rows } = read(`rows-${element.dataset.rows}`);
  const described = columns.map(({ name, kind }) => ({
    name,
    render: cell(kind),
    type: ["number", "share", "plain"].includes(kind) ? "num" : "string",
    className: ["number", "share"].includes(kind) ? "dt-right" : ["reason", "note"].includes(name) ? "long" : "dt-left",
  }));
  element.tBodies[0].replaceChildren();
  const table = new DataTable(element, {
    data: rows, columns: described, deferRender: true, autoWidth: false, order: [], pageLength: 12, lengthMenu: [12, 50, 200],
    language: { emptyTable: "no rows", zeroRecords: "no row fits the filters" },
  });
  tables.push(table);
  filterTable(table);
}

function filterTable(table) {
  for (const { name, value } of filters.querySelectorAll("select")) {
    const column = table.column(`${name}:name`);
    if (column.any()) column.search(value, { exact: value !== "" });
  }
  table.draw();
}

// ---- figures
let loading;
function plotly() {
  loading ??= (async () => {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    return window.Plotly;
  })();
  return loading;
}

const template = (light) => themes[dark.matches && !light ? "dark" : "light"];
const lines = (name) => name.match(/.{1,90}/gs).map(escaped).join("<br>");
const fits = ({ meta = {} }) =>
  [...filters.querySelectorAll("select")].every(({ name, value }) => !value || !(name in meta) || String(meta[name]) === value);

function traces(place) {
  if (place.dataset.chart === "flame") return [flame(document.getElementById("flame-run").value)];
  const { data } = read(`chart-${place.dataset.chart}`);
  for (const trace of data) {
    if (trace.meta?.named) trace.text = trace.customdata.map(([name, path]) => `${lines(names.full[name])}<br>in ${lines(names.full[path])}`);
  }
  return data.map((trace) => ({ ...trace, visible: fits(trace) }));
}

function flame(run) {
  const { parent, name, ms, launches, color } = read("flames")[run];
  return {
    type: "icicle", branchvalues: "total", sort: false, tiling: { orientation: "v" }, pathbar: { thickness: 22 },
    ids: ms.map((_, i) => String(i)), parents: parent.map((p) => (p < 0 ? "" : String(p))), values: ms,
    labels: name.map((n) => escaped(names.short[n])), marker: { colors: color, line: { width: 1 } },
    customdata: name.map((n, i) => [lines(names.full[n]), launches[i].toLocaleString("en", { maximumFractionDigits: 1 })]),
    hovertemplate: "%{customdata[0]}<br>%{value:.4f} ms per step, %{percentRoot:.1%} of it<br>%{customdata[1]} launches<extra></extra>",
  };
}

async function draw(place) {
  const library = await plotly();
  const layout = place.dataset.chart === "flame" ? { height: 520, margin: { l: 4, r: 4, t: 30, b: 4 } } : read(`chart-${place.dataset.chart}`).layout;
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  if (["flame", "timeline"].includes(place.dataset.chart)) config.displayModeBar = false;
  await library.newPlot(place, traces(place), { ...layout, template: template() }, config);
  place.closest("figure").classList.add("drawn");
  drawn.add(place);
}

const redraw = (place, light) => window.Plotly.react(place, place.data, { ...place.layout, template: template(light) });

function applyFilters() {
  tables.forEach(filterTable);
  for (const place of drawn) {
    if (place.data.some((trace) => trace.meta)) window.Plotly.restyle(place, { visible: place.data.map(fits) });
  }
}

// ---- the timeline, by buttons
function move(how) {
  const place = document.querySelector("[data-chart=timeline]");
  if (!drawn.has(place)) return;
  const whole = read("chart-timeline").layout.xaxis.range;
  const [from, to] = place.layout.xaxis.range.map(Number);
  const width = to - from;
  const [low, high] = { in: [0.25, -0.25], out: [-0.5, 0.5], left: [-0.5, -0.5], right: [0.5, 0.5] }[how] ?? [0, 0];
  const range = how === "all" ? whole : [Math.max(whole[0], from + low * width), Math.min(whole[1], to + high * width)];
  window.Plotly.relayout(place, { "xaxis.range": range });
}

// ---- start
const start = (element) => (element.dataset.chart ? draw(element) : startTable(element));
const watcher = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      start(target);
    }
  },
  { rootMargin: "300px" },
);
all("[data-chart], table[data-rows]").forEach((element) => watcher.observe(element));
filters.addEventListener("change", applyFilters);
filters.addEventListener("reset", () => setTimeout(applyFilters));
document.getElementById("flame-run")?.addEventListener("change", () => draw(document.querySelector("[data-chart=flame]")));
all("[data-move]").forEach((button) => button.addEventListener("click", () => move(button.dataset.move)));
dark.addEventListener("change", () => (set_or_remove_dark_class(), drawn.forEach((place) => redraw(place))));
addEventListener("beforeprint", () => {
  document.documentElement.classList.remove("dark");
  drawn.forEach((place) => redraw(place, true));
});
addEventListener("afterprint", () => (set_or_remove_dark_class(), drawn.forEach((place) => redraw(place))));
set_or_remove_dark_class();
