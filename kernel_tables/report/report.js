// ---- tables: rows that are in the page already, sorted and searched
for (const table of all("[data-table]")) {
  const key = table.id.replace("table-", ""); // the name of the table
  const rows = [...table.tBodies[0].rows];
  const maxRows = Number(table.dataset.shown);
  const moreButton = document.querySelector(`[data-more=${key}]`);
  let order = rows;
  let showsAll = rows.length <= maxRows;
  const search = document.querySelector(`[data-search=${key}]`);
  // What the search looks at: the text of a row, and the full names behind its short names.
  const texts = rows.map((row) => (row.textContent + [...row.querySelectorAll("[data-name]")].map((e) => names.full[e.dataset.name]).join(" ")).toLowerCase());
  const text = new Map(rows.map((row, i) => [row, texts[i]]));
  /** Shows the rows that are searched for, without "Show all" at most maxRows of them, and their number. */
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
      // The other direction than before; at first, numbers descending and texts ascending.
      const down = heading.ariaSort ? heading.ariaSort === "ascending" : heading.classList.contains("number");
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = ({ cells }) => cells[column].dataset.sort ?? cells[column].textContent;
      const isNumber = ({ cells }) => cells[column].dataset.sort !== undefined;
      const compare = (a, b) => (isNumber(a) && isNumber(b) ? value(a) - value(b) : value(a).localeCompare(value(b)));
      order = [...order].sort((a, b) => (down ? -1 : 1) * compare(a, b));
      table.tBodies[0].append(...order);
      show();
    });
  });
  search.addEventListener("input", show);
  moreButton.addEventListener("click", () => ((showsAll = true), show()));
  show();
}
// A full name is put below its short name when that is first opened.
all("details[data-name]").forEach((details) =>
  details.addEventListener("toggle", () => details.children[1] ?? details.append(Object.assign(document.createElement("code"), { textContent: names.full[details.dataset.name] }))),
);

// ---- start
all("[data-flame]").forEach((place) => startFlame(place, "step"));
