// ---- the timeline: bars in lanes on a canvas, zoomed by buttons, keys and the wheel; the chosen bar is described below
// The data are those of timeline() in page/timeline.py. All times are nanoseconds from the start of the timeline.
function startTimeline(canvas, { lanes, count, gap, length, kind, name, path, look }) {
  const ROW = 26, TOP = 22, FONT = "system-ui, sans-serif";
  const description = document.getElementById("timeline-description");
  const bars = []; // { lane, start, end, kind }, lane by lane in the order of time
  const first = []; // the number of the first bar of each lane; the last entry is how many bars there are
  count.forEach((laneCount, lane) => {
    first.push(bars.length);
    for (let start = 0, stop = bars.length + laneCount; bars.length < stop; ) {
      const i = bars.length;
      start += gap[i];
      bars.push({ lane, start, end: start + length[i], kind: kind[i] });
    }
  });
  first.push(bars.length);
  const whole = [0, bars.reduce((end, bar) => Math.max(end, bar.end), 1)];
  const style = (key) => getComputedStyle(document.documentElement).getPropertyValue(`--${key}`).trim();
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const time = (ns) => { const [size, unit] = units.find(([one]) => ns >= one) ?? units[3]; return `${+(ns / size).toPrecision(4)} ${unit}`; };
  const outer = (title) => title.replace(/, level \d+$/, ""); // the title without its level
  const short = lanes.map((title, i) => (i && outer(title) === outer(lanes[i - 1]) ? `  ${title.slice(outer(title).length + 2)}` : title));
  let [from, to] = whole; // what is shown
  let chosen; // the number of a bar
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
  const describe = ({ lane, start, end, kind }) => {
    const around = path[kind] === null ? "" : `; in ${names.full[path[kind]]}`;
    description.textContent = `${names.full[name[kind]]}: ${time(end - start)}, from ${start ? time(start) : "0"}${around}; ${lanes[lane]}`;
  };
  /** Chooses a bar, and brings it into sight. */
  const choose = (i) => {
    if (!bars[i]) return;
    chosen = i;
    describe(bars[i]);
    const middle = (bars[i].start + bars[i].end) / 2, half = (to - from) / 2;
    if (bars[i].end < from || bars[i].start > to) zoomTo(middle - half, middle + half);
    else draw();
  };
  /** The bar of a lane whose middle is nearest to a time. */
  const nearest = (lane, ns) => {
    const distance = (i) => Math.abs((bars[i].start + bars[i].end) / 2 - ns);
    let closest = first[lane];
    for (let i = closest; i < first[lane + 1]; i++) if (distance(i) < distance(closest)) closest = i;
    return closest;
  };
  /** A function that chooses the next bar of the lane (`by` 1) or the one before (-1). */
  const neighbor = (by) => () => {
    if (chosen === undefined) return choose(nearest(0, (from + to) / 2));
    if (bars[chosen + by]?.lane === bars[chosen].lane) choose(chosen + by);
  };
  /** A function that chooses a bar of the lane below (`by` 1) or above (-1). */
  const across = (by) => () => {
    const bar = bars[chosen];
    const lane = bar ? bar.lane + by : by > 0 ? 0 : lanes.length - 1;
    if (lanes[lane] === undefined) return;
    const middle = bar && bar.end > from && bar.start < to ? (Math.max(bar.start, from) + Math.min(bar.end, to)) / 2 : (from + to) / 2;
    choose(nearest(lane, middle));
  };
  const moves = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => zoomTo(from - (to - from) / 2, to - (to - from) / 2),
    right: () => zoomTo(from + (to - from) / 2, to + (to - from) / 2),
    all: () => zoomTo(...whole),
    next: neighbor(1),
    previous: neighbor(-1),
    up: across(-1),
    down: across(1),
    chosen: () => bars[chosen] && zoomTo(bars[chosen].start, bars[chosen].end),
  };

  function axis(context, width) {
    const most = Math.max(4, (width - gutter()) / 70); // labels
    const least = (to - from) / most; // ns between labels
    const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(least))).find((n) => n >= least);
    for (let ns = Math.ceil(from / step) * step; ns <= to; ns += step) {
      context.fillStyle = style("line");
      context.fillRect(at(ns), TOP - 4, 1, ROW * lanes.length + 4);
      context.fillStyle = style("soft");
      const label = ns === 0 ? "0" : time(ns);
      if (at(ns) + context.measureText(label).width < width) context.fillText(label, at(ns) + 3, TOP / 2);
    }
  }
  function drawBar(context, { lane, start, end, kind }, ground) {
    const left = Math.max(at(start), gutter()), wide = Math.max(at(end) - left, 0.6), top = TOP + ROW * lane + 2, high = ROW - 4;
    const { color, lines, dark } = looks[look[kind]];
    context.fillStyle = color;
    context.fillRect(left, top, wide, high);
    context.fillStyle = ground;
    for (const [low, up] of lines) context.fillRect(left, top + Math.round(low * high), wide, Math.round((up - low) * high));
    if (wide < 34) return;
    context.fillStyle = dark ? "#fff" : "#000";
    let text = names.short[name[kind]];
    const room = Math.floor((wide - 6) / 5.8);
    if (text.length > room) text = room > 3 ? `${text.slice(0, room - 1)}…` : "";
    context.fillText(text, left + 3, top + high / 2);
  }
  function draw() {
    const width = canvas.clientWidth, height = TOP + ROW * lanes.length, scale = devicePixelRatio || 1;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d"), ground = style("ground"), ink = style("ink");
    context.scale(scale, scale);
    context.textBaseline = "middle";
    context.font = `12px ${FONT}`;
    axis(context, width);
    context.fillStyle = ink;
    short.forEach((text, i) => context.fillText(text, 0, TOP + ROW * (i + 0.5), gutter() - 8));
    context.font = `11px ${FONT}`;
    context.beginPath();
    context.rect(gutter(), 0, width - gutter(), height);
    context.clip();
    for (const bar of bars) if (bar.start <= to && bar.end >= from) drawBar(context, bar, ground);
    if (chosen !== undefined) {
      const { lane, start, end } = bars[chosen], left = at(start) - 1.5, wide = Math.max(at(end) - at(start), 0.6) + 3;
      Object.assign(context, { strokeStyle: ink, lineWidth: 2 });
      context.strokeRect(left, TOP + ROW * lane + 1, wide, ROW - 2);
    }
  }
  /** The number of the bar at a position; undefined if there is none. */
  function under({ offsetX, offsetY }) {
    const lane = Math.floor((offsetY - TOP) / ROW);
    for (let i = (first[lane + 1] ?? 0) - 1; i >= first[lane]; i--) {
      if (at(bars[i].start) - 1 <= offsetX && offsetX <= at(bars[i].end) + 1) return i;
    }
  }
  let held; // while the pointer is down: where it went down, and what was shown then
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.offsetX, from, to };
    canvas.setPointerCapture(event.pointerId);
    choose(under(event));
  });
  canvas.addEventListener("pointerup", () => (held = undefined));
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const by = ((held.x - event.offsetX) / (canvas.clientWidth - gutter())) * (held.to - held.from);
      return zoomTo(held.from + by, held.to + by);
    }
    const i = under(event);
    if (i !== undefined) describe(bars[i]);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, from + ((event.offsetX - gutter()) / (canvas.clientWidth - gutter())) * (to - from));
  }, { passive: false });
  const keys = {
    "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all",
    ".": "next", ",": "previous", ArrowUp: "up", ArrowDown: "down", Enter: "chosen",
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[keys[event.key]]();
  });
  canvas.addEventListener("dblclick", moves.all);
  all("[data-move]").forEach((button) => button.addEventListener("click", moves[button.dataset.move]));
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
  draw();
}
all("#timeline-canvas").forEach((canvas) => startTimeline(canvas, read("timeline-bars")));
