// The scripts of every page. The data are the flame graph.
const all = (selector) => [...document.querySelectorAll(selector)];
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const flame = JSON.parse(document.getElementById("data").textContent);

// ---- tables: a click on a heading sorts the rows
function startTable(table) {
  const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
  const number = (cell) => Number(cell.dataset.sort ?? cell.textContent.replace(/[,×*]/g, "").replace("−", "-").match(/^\s*(?:< *)?(-?\d+(?:\.\d+)?)/)?.[1]);
  const compare = (a, b) => (Number.isNaN(number(a) + number(b)) ? a.textContent.localeCompare(b.textContent, undefined, { numeric: true }) : number(a) - number(b));
  headings.forEach((heading, column) => {
    const button = make("button", { type: "button", textContent: heading.textContent });
    heading.replaceChildren(button);
    button.addEventListener("click", () => { // in the other direction than before; at first, numbers descending
      const down = heading.ariaSort ? heading.ariaSort === "ascending" : !Number.isNaN(number(body.rows[0].cells[column]));
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * compare(a.cells[column], b.cells[column])));
    });
  });
}
all("main table:not([data-tree])").forEach((table) => table.tBodies[0]?.rows.length && startTable(table));

// ---- the flame graph: a button per range and kernel; a click redraws it so that the clicked one fills the width
function startFlame(place) {
  const { parent, name, ms, launches, look, full, short } = flame;
  const above = parent.map(() => [0]); // the nodes from the root to each node, with it
  const left = parent.map(() => 0), used = [...left]; // the ms to the left of each node; what its children use so far
  for (let i = 1; i < parent.length; i++) {
    above[i] = [...above[parent[i]], i];
    left[i] = left[parent[i]] + used[parent[i]];
    used[parent[i]] += ms[i];
  }
  const describe = (i) =>
    `${full[name[i]]}: ${+ms[i].toPrecision(4)} ${place.dataset.unit}, ${((100 * ms[i]) / ms[0]).toFixed(1)} % of it, ` +
    `${launches[i].toLocaleString("en", { maximumFractionDigits: 1 })} launches`;
  const show = (root) => {
    const bars = parent.flatMap((_, i) => {
      const around = above[root].includes(i), width = around ? 1 : ms[i] / ms[root]; // around: the root and what is above
      if (!around && !(above[i].includes(root) && width > 0.001)) return [];
      const from = around ? 0 : (left[i] - left[root]) / ms[root];
      const bar = make("button", { type: "button", textContent: short[name[i]], title: describe(i), node: i, className: `look-${look[i]}` });
      Object.assign(bar.style, { left: `${100 * from}%`, width: `${100 * width}%`, top: `${1.5 * (above[i].length - 1)}rem` });
      return [Object.assign(bar, { onclick: () => show(i) })];
    });
    place.style.height = `${1.5 * Math.max(...above.map(({ length }) => length))}rem`;
    const hadFocus = place.contains(document.activeElement);
    place.replaceChildren(...bars);
    if (hadFocus) bars.find((bar) => bar.node === root).focus();
    document.getElementById("flame-description").textContent = describe(root);
  };
  show(0);
}
all("[data-flame]").forEach((place) => startFlame(place));
