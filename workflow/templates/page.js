// Sortable tables by DataTables, which is compressed in the page; the flame graph of the chosen run. startFlame is in kernel_tables/page.
const packed = Uint8Array.from(atob(document.getElementById("datatables").textContent), (c) => c.charCodeAt(0));
const library = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
const { default: DataTable, set_or_remove_dark_class } = await import(`data:text/javascript,${encodeURIComponent(library)}`);

/** A table becomes sortable and searchable when its evidence is opened: by the number at the beginning of its cells. */
function startTables(details) {
  for (const table of details.querySelectorAll("table:not(.dataTable)")) {
    if (!table.tBodies[0]?.rows.length) continue;
    const paging = table.tBodies[0].rows.length > 25;
    for (const cell of table.tBodies[0].querySelectorAll("td")) {
      const number = cell.textContent.replace(/[,×*]/g, "").replace("−", "-").match(/^\s*(?:< *)?(-?\d+(?:\.\d+)?)/);
      if (number) cell.dataset.order = number[1];
    }
    new DataTable(table, { paging, pageLength: 25, lengthChange: false, info: paging, searching: paging, order: [], autoWidth: false });
  }
}
all("section > details").forEach((details) => details.addEventListener("toggle", () => startTables(details), { once: true }));
const flame = document.querySelector("[data-flame]");
const chosen = document.getElementById("flame-run");
if (flame) {
  startFlame(flame, chosen.value);
  chosen.addEventListener("change", () => startFlame(flame, chosen.value));
}
set_or_remove_dark_class();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", set_or_remove_dark_class);
