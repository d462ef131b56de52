// ---- tables: rows that are in the page already, sorted and searched
for (const table of all("[data-table]")) {
  const key = table.id.replace("table-", "");
  const rows = [...table.tBodies[0].rows];
  const maxRows = Number(table.dataset.shown);
  const moreButton = document.querySelector(`[data-more=${key}]`);
  let order = rows;
  let showsAll = rows.length <= maxRows;
  const search = document.querySelector(`[data-search=${key}]`);
  const texts = rows.map((row) => (row.textContent + [...row.querySelectorAll("[data-name]")].map((e) => names.full[e.dataset.name]).join(" ")).toLowerCase());
  const text = new Map(rows.map((row, i) => [row, texts[i]]));
  const show = () => {
    const wanted = search.value.toLowerCase();
    let shown = 0;
    for (const row of order) {
      const fits = text.get(row).includes(wanted);
      row.hidden = !fits || (!showsAll && shown >= maxRows);
      shown += fits;
    }
    document.querySelector(`[data-count=${key}]`).textContent = (shown < rows.length || !showsAll ? `${showsAll ? shown : Math.min(shown, maxRows)} of ` : "") + `${rows.length} ${rows.length === 1 ? "row" : "rows"}.`;
    moreButton.hidden = showsAll || shown <= maxRows;
  };
  table.tHead.querySelectorAll("button").forEach((button, column) => {
    button.addEventListener("click", () => {
      const heading = button.closest("th");
      const down = heading.ariaSort ? heading.ariaSort === "ascending" : heading.classList.contains("number");
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = ({ cells }) => cells[column].dataset.sort ?? cells[column].textContent;
      const compare = (a, b) => (cellsAreNumbers(a, b) ? value(a) - value(b) : value(a).localeCompare(value(b)));
      const cellsAreNumbers = (a, b) => a.cells[column].dataset.sort !== undefined && b.cells[column].dataset.sort !== undefined;
      order = [...order].sort((a, b) => (down ? -1 : 1) * compare(a, b));
      table.tBodies[0].append(...order);
      show();
    });
  });
  search.addEventListener("input", show);
  moreButton.addEventListener("click", () => ((showsAll = true), show()));
  show();
}
all("details[data-name]").forEach((details) =>
  details.addEventListener("toggle", () => details.children[1] ?? details.append(Object.assign(document.createElement("code"), { textContent: names.full[details.dataset.name] }))),
);

// ---- start
all("[data-flame]").forEach((place) => startFlame(place, "step"));
