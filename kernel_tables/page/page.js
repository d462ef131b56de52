// The scripts of every page. The data are the names that numbers refer to, the looks of bars, flame graphs and a timeline.
const all = (selector) => [...document.querySelectorAll(selector)];
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const { names, looks, flames, timeline } = JSON.parse(document.getElementById("data").textContent);

// ---- tables: at first 20 rows are shown; a click on a heading sorts them
function startTable(table) {
  const rows = [...table.tBodies[0].rows], headings = [...table.tHead.rows[0].cells], most = 20;
  const count = make("span", { className: "rest" }), more = make("button", { type: "button", textContent: "Show all" });
  let order = rows, limit = most;
  const show = () => {
    order.forEach((row, i) => (row.hidden = i >= limit));
    count.textContent = `${limit < rows.length ? `${limit} of ` : ""}${rows.length} ${rows.length === 1 ? "row" : "rows"}. `;
    more.hidden = rows.length <= limit;
  };
  const number = (cell) => Number(cell.dataset.sort ?? cell.textContent.replace(/[,×*]/g, "").replace("−", "-").match(/^\s*(?:< *)?(-?\d+(?:\.\d+)?)/)?.[1]);
  const compare = (a, b) => (Number.isNaN(number(a) + number(b)) ? a.textContent.localeCompare(b.textContent, undefined, { numeric: true }) : number(a) - number(b));
  headings.forEach((heading, column) => {
    const button = make("button", { type: "button", textContent: heading.textContent });
    if (table.dataset.tree === undefined) heading.replaceChildren(button);
    button.addEventListener("click", () => { // in the other direction than before; at first, numbers descending
      const down = heading.ariaSort ? heading.ariaSort === "ascending" : !Number.isNaN(number(rows[0].cells[column]));
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      order = [...order].sort((a, b) => (down ? -1 : 1) * compare(a.cells[column], b.cells[column]));
      table.tBodies[0].append(...order);
      show();
    });
  });
  table.after(count, more);
  more.onclick = () => ((limit = Infinity), show());
  show();
}
all("main table").forEach((table) => table.tBodies[0]?.rows.length && startTable(table));

// ---- the flame graph: a button per range and kernel; a click redraws it so that the clicked one fills the width
function startFlame(place, { parent, name, ms, launches, look }) {
  const above = parent.map(() => [0]); // the nodes from the root to each node, with it
  const left = parent.map(() => 0), used = [...left]; // the ms to the left of each node; what its children use so far
  for (let i = 1; i < parent.length; i++) {
    above[i] = [...above[parent[i]], i];
    left[i] = left[parent[i]] + used[parent[i]];
    used[parent[i]] += ms[i];
  }
  const describe = (i) =>
    `${names.full[name[i]]}: ${+ms[i].toPrecision(4)} ${place.dataset.unit}, ${((100 * ms[i]) / ms[0]).toFixed(1)} % of it, ` +
    `${launches[i].toLocaleString("en", { maximumFractionDigits: 1 })} launches`;
  const show = (root) => {
    const bars = parent.flatMap((_, i) => {
      const around = above[root].includes(i), width = around ? 1 : ms[i] / ms[root]; // around: the root and what is above
      if (!around && !(above[i].includes(root) && width > 0.001)) return [];
      const [, , dark, background] = looks[look[i]], from = around ? 0 : (left[i] - left[root]) / ms[root];
      const bar = make("button", { type: "button", textContent: names.short[name[i]], title: describe(i), node: i, className: dark ? "on-dark" : "" });
      Object.assign(bar.style, { left: `${100 * from}%`, width: `${100 * width}%`, top: `${1.5 * (above[i].length - 1)}rem`, background });
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
const run = document.getElementById("flame-run"); // where a page has several flame graphs
const showFlame = () => all("[data-flame]").forEach((place) => startFlame(place, flames[run?.value ?? "step"]));
run?.addEventListener("change", showFlame);
showFlame();

// ---- the timeline: bars in lanes on a canvas, zoomed by buttons and the wheel; the chosen bar is described below
function startTimeline(canvas, { lanes, kinds }) {
  const ROW = 26, TOP = 22, description = document.getElementById("timeline-description");
  const bars = lanes.flatMap(({ start, length, kind }, lane) => // lane by lane in the order of time
    start.map((ns, i) => ({ lane, start: ns, end: ns + length[i], kind: kinds[kind[i]] }))); // kind: name, path, look
  const whole = [0, bars.reduce((end, bar) => Math.max(end, bar.end), 1)];
  const unit = (ns) => [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([size]) => ns >= size) ?? [1, "ns"];
  const time = (ns) => (ns ? `${+(ns / unit(ns)[0]).toPrecision(4)} ${unit(ns)[1]}` : "0");
  const outer = (lane) => lanes[lane]?.title.replace(/, level \d+$/, ""); // the title without its level
  const titles = lanes.map(({ title }, i) => (outer(i) === outer(i - 1) ? `  ${title.slice(outer(i).length + 2)}` : title));
  let [from, to] = whole, chosen; // what is shown; the number of a bar
  canvas.view = { get range() { return [from, to]; }, get chosen() { return chosen; }, whole, bars }; // for tests
  const gutter = () => Math.min(180, canvas.clientWidth * 0.34); // the width of the titles of lanes
  const at = (ns) => gutter() + ((ns - from) / (to - from)) * (canvas.clientWidth - gutter());
  const zoomTo = (a, b) => {
    const width = Math.min(Math.max(b - a, 50), whole[1]);
    from = Math.min(Math.max(a, 0), whole[1] - width);
    to = from + width;
    draw();
  };
  const zoom = (factor, middle = (from + to) / 2) => zoomTo(middle - (middle - from) * factor, middle + (to - middle) * factor);
  const move = (by) => zoomTo(from + by * (to - from), to + by * (to - from));
  const describe = ({ lane, start, end, kind: [name, path] }) => {
    const around = path === null ? "" : `; in ${names.full[path]}`;
    description.textContent = `${names.full[name]}: ${time(end - start)}, from ${time(start)}${around}; ${lanes[lane].title}`;
  };
  const choose = (i) => {
    if (!bars[i]) return;
    describe(bars[(chosen = i)]);
    draw();
  };
  const moves = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.5), right: () => move(0.5), all: () => zoomTo(...whole),
  };
  function drawBar(context, { lane, start, end, kind: [name, , look] }, ground) {
    const left = Math.max(at(start), gutter()), wide = Math.max(at(end) - left, 0.6), top = TOP + ROW * lane + 2, high = ROW - 4;
    const [color, lines, dark] = looks[look], room = Math.floor((wide - 6) / 5.8), text = names.short[name];
    context.fillStyle = color;
    context.fillRect(left, top, wide, high);
    context.fillStyle = ground;
    for (const [low, up] of lines) context.fillRect(left, top + Math.round(low * high), wide, Math.round((up - low) * high));
    context.fillStyle = dark ? "#fff" : "#000";
    if (wide > 33) context.fillText(text.length <= room ? text : `${text.slice(0, room - 1)}…`, left + 3, top + high / 2);
  }
  function draw() {
    const width = canvas.clientWidth, height = TOP + ROW * lanes.length, scale = devicePixelRatio || 1;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d"), styles = getComputedStyle(document.documentElement);
    const [ground, ink, line, soft] = ["ground", "ink", "line", "soft"].map((key) => styles.getPropertyValue(`--${key}`).trim());
    context.scale(scale, scale);
    Object.assign(context, { textBaseline: "middle", font: "12px system-ui, sans-serif" });
    const least = (to - from) / Math.max(4, (width - gutter()) / 70); // ns between labels of the axis
    const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(least))).find((n) => n >= least);
    for (let ns = Math.ceil(from / step) * step; ns <= to; ns += step) {
      context.fillStyle = line;
      context.fillRect(at(ns), TOP - 4, 1, height - TOP + 4);
      context.fillStyle = soft;
      if (at(ns) + context.measureText(time(ns)).width < width) context.fillText(time(ns), at(ns) + 3, TOP / 2);
    }
    context.fillStyle = ink;
    titles.forEach((text, i) => context.fillText(text, 0, TOP + ROW * (i + 0.5), gutter() - 8));
    context.font = "11px system-ui, sans-serif";
    context.beginPath();
    context.rect(gutter(), 0, width - gutter(), height);
    context.clip();
    for (const bar of bars) if (bar.start <= to && bar.end >= from) drawBar(context, bar, ground);
    if (chosen === undefined) return;
    const { lane, start, end } = bars[chosen];
    Object.assign(context, { strokeStyle: ink, lineWidth: 2 });
    context.strokeRect(at(start) - 1.5, TOP + ROW * lane + 1, Math.max(at(end) - at(start), 0.6) + 3, ROW - 2);
  }
  const under = ({ offsetX, offsetY }) => // the number of the bar at a position
    bars.findLastIndex(({ lane, start, end }) => lane === Math.floor((offsetY - TOP) / ROW) && at(start) - 1 <= offsetX && offsetX <= at(end) + 1);
  const timeAt = (x) => from + ((x - gutter()) / (canvas.clientWidth - gutter())) * (to - from);
  let held; // while the pointer is down: the time at which it went down
  canvas.onpointerdown = (event) => {
    held = timeAt(event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    choose(under(event));
  };
  canvas.onpointerup = () => (held = undefined);
  canvas.onpointermove = (event) => {
    const by = held === undefined ? 0 : held - timeAt(event.offsetX);
    if (by) zoomTo(from + by, to + by);
    else if (bars[under(event)]) describe(bars[under(event)]);
  };
  canvas.onwheel = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX));
  };
  for (const button of all("[data-move]")) button.onclick = moves[button.dataset.move];
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
}
if (timeline) startTimeline(document.getElementById("timeline-canvas"), timeline);
