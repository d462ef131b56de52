// Glue between the page and its two libraries: starts a table or figure when it comes near the window, applies the filters.
// `all`, `read`, `escaped`, `names` and `startFlame` come from the scripts in kernel_tables/page.

/** The text of a library that is compressed in the page. */
async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const module = encodeURIComponent(await unpacked("datatables"));
const { default: DataTable, set_or_remove_dark_class } = await import(`data:text/javascript,${module}`);

const filters = document.getElementById("filters");
const dark = matchMedia("(prefers-color-scheme: dark)");
const tables = [];
const charts = () => all("[data-chart]").flatMap(({ chart }) => chart ?? []); // those drawn: { view, data, paperColors }
const chosenMenus = () => [...filters.querySelectorAll("select")].filter(({ value }) => value);

// ---- tables
const numberFormat = (options) => (value) => value.toLocaleString("en", options);
const formatByKind = { // of columns
  text: escaped,
  flag: escaped,
  plain: escaped,
  number: numberFormat({ maximumSignificantDigits: 4 }),
  share: numberFormat({ style: "percent", maximumFractionDigits: 2 }),
  kernel: (n) => {
    const [short, full] = [escaped(names.short[n]), escaped(names.full[n])];
    return short === full ? full : `<details><summary>${short}</summary><code>${full}</code></details>`;
  },
};
/** What DataTables shows for a value, or sorts and filters it by: that is the `purpose`. */
const cell = (kind) => (value, purpose) => {
  if (value === null) return purpose === "display" ? "–" : "";
  if (purpose === "display") return formatByKind[kind](value);
  return kind === "kernel" ? names.full[value] : value;
};

function startTable(element) {
  const { columns, rows } = read(`rows-${element.dataset.rows}`);
  const columnOptions = columns.map(({ name, kind }) => ({
    name,
    render: cell(kind),
    type: ["number", "share", "plain"].includes(kind) ? "num" : "string",
    className: ["number", "share"].includes(kind) ? "dt-right" : ["reason", "note"].includes(name) ? "long" : "dt-left",
  }));
  element.tBodies[0].replaceChildren();
  const table = new DataTable(element, {
    data: rows, columns: columnOptions, deferRender: true, autoWidth: false, order: [], pageLength: 12, lengthMenu: [12, 50, 200],
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

// ---- charts
let loading;
function vegaEmbed() {
  loading ??= (async () => {
    const script = Object.assign(document.createElement("script"), { textContent: `{${await unpacked("vega")}}` });
    document.head.append(script);
    return window.vegaEmbed;
  })();
  return loading;
}

/** The rows of a data set as objects. */
const rowsOf = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i]])));

/** Whether a row has the chosen value of every menu whose column it has. */
const fits = (row) => chosenMenus().every(({ name, value }) => !(name in row) || String(row[name]) === value);
const fittingRows = (data) => Object.entries(data).map(([name, rows]) => [name, rows.filter(fits)]);
/** The value of a colour, such as "ink", in the page's style. */
const onPage = (color) => getComputedStyle(document.documentElement).getPropertyValue(`--${color}`).trim();

/** Gives the chart the colours of the page, or of paper. */
function paint({ view, paperColors }, onPaper) {
  for (const color of Object.keys(paperColors)) view.signal(color, onPaper ? paperColors[color] : onPage(color));
  view.run();
}

async function draw(element) {
  const spec = read(`chart-${element.dataset.chart}`);
  const data = Object.fromEntries(Object.entries(spec.datasets).map(([name, dataSet]) => [name, rowsOf(dataSet)]));
  // Parameters with a value are colours: profile_grid/figures/paper.py adds them with their values on paper.
  const paperColors = Object.fromEntries(spec.params.filter(({ value }) => value).map(({ name, value }) => [name, value]));
  const options = { ast: true, actions: false, renderer: "svg", tooltip: { disableDefaultStyle: true } };
  const { view } = await (await vegaEmbed())(element, { ...spec, datasets: Object.fromEntries(fittingRows(data)) }, options);
  const svg = element.querySelector("svg");
  svg.style.maxWidth = `${1.35 * svg.viewBox.baseVal.width}px`; // so that text of narrow charts is not larger
  element.chart = { view, data, paperColors };
  paint(element.chart);
  element.closest("figure").classList.add("drawn");
}

function filterChart({ view, data }) {
  for (const [name, rows] of fittingRows(data)) view.data(name, rows);
  view.run();
}

// ---- start
function start(element) {
  if (element.dataset.chart) draw(element);
  else startTable(element);
}
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
all("[data-flame]").forEach((element) => startFlame(element, document.getElementById("flame-run").value)); // on paper too
const applyFilters = () => (tables.forEach(filterTable), charts().forEach(filterChart));
filters.addEventListener("change", applyFilters);
filters.addEventListener("reset", () => setTimeout(applyFilters));
document.getElementById("flame-run")?.addEventListener("change", ({ target }) => startFlame(document.querySelector("[data-flame]"), target.value));
const paintAll = (onPaper) => charts().forEach((chart) => paint(chart, onPaper));
dark.addEventListener("change", () => (set_or_remove_dark_class(), paintAll(false)));
addEventListener("beforeprint", () => (document.documentElement.classList.remove("dark"), paintAll(true)));
addEventListener("afterprint", () => (set_or_remove_dark_class(), paintAll(false)));
set_or_remove_dark_class();
