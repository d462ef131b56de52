// ---- the timeline: bars in lanes on a canvas, zoomed by buttons, keys and the wheel
function startTimeline(canvas, { lanes, lane, start, length, name, color }) {
  const ROW = 24, TOP = 22, whole = [0, Math.max(1, ...start.map((s, i) => s + length[i]))];
  const told = document.getElementById("timeline-told");
  const style = (key) => getComputedStyle(document.documentElement).getPropertyValue(`--${key}`).trim();
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const time = (ns) => { const [size, unit] = units.find(([one]) => ns >= one) ?? units[3]; return `${+(ns / size).toPrecision(4)} ${unit}`; };
  let [from, to] = whole;
  canvas.view = { get range() { return [from, to]; }, whole }; // what is seen
  const gutter = () => Math.min(170, canvas.clientWidth * 0.3);
  const at = (ns) => gutter() + ((ns - from) / (to - from)) * (canvas.clientWidth - gutter());
  const zoomTo = (a, b) => {
    const width = Math.min(Math.max(b - a, 50), whole[1]);
    from = Math.min(Math.max(a, 0), whole[1] - width);
    to = from + width;
    draw();
  };
  const zoom = (factor, middle = (from + to) / 2) => zoomTo(middle - (middle - from) * factor, middle + (to - middle) * factor);
  const moves = { in: () => zoom(0.5), out: () => zoom(2), left: () => zoomTo(from - (to - from) / 2, to - (to - from) / 2), right: () => zoomTo(from + (to - from) / 2, to + (to - from) / 2), all: () => zoomTo(...whole) };

  function axis(context, width) {
    const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10((to - from) / 5))).find((n) => (to - from) / n <= 6) ?? (to - from) / 5;
    for (let ns = Math.ceil(from / step) * step; ns <= to; ns += step) {
      context.fillStyle = style("line");
      context.fillRect(at(ns), TOP - 4, 1, ROW * lanes.length + 4);
      context.fillStyle = style("soft");
      const label = ns === 0 ? "0" : time(ns);
      if (at(ns) + context.measureText(label).width < width) context.fillText(label, at(ns) + 3, TOP / 2);
    }
  }
  function draw() {
    const width = canvas.clientWidth, height = TOP + ROW * lanes.length, scale = devicePixelRatio || 1;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    axis(context, width);
    context.save();
    context.beginPath();
    context.rect(gutter(), 0, width - gutter(), height);
    context.clip();
    for (let i = 0; i < start.length; i++) {
      if (start[i] > to || start[i] + length[i] < from) continue;
      const left = Math.max(at(start[i]), gutter()), wide = Math.max(at(start[i] + length[i]) - left, 0.6), top = TOP + ROW * lane[i] + 2;
      context.fillStyle = color[i];
      context.fillRect(left, top, wide, ROW - 4);
      if (wide < 34) continue;
      context.fillStyle = ["#0072B2", "#D55E00", "#009E73"].includes(color[i]) ? "#fff" : "#000";
      let text = names.short[name[i]];
      const room = Math.floor((wide - 6) / 6.2);
      if (text.length > room) text = room > 3 ? `${text.slice(0, room - 1)}…` : "";
      context.fillText(text, left + 3, top + (ROW - 4) / 2);
    }
    context.restore();
    context.fillStyle = style("ink");
    lanes.forEach((text, i) => context.fillText(text, 0, TOP + ROW * (i + 0.5), gutter() - 8));
  }
  function under({ offsetX, offsetY }) {
    const row = Math.floor((offsetY - TOP) / ROW);
    for (let i = start.length - 1; i >= 0; i--) {
      if (lane[i] === row && at(start[i]) - 1 <= offsetX && offsetX <= at(start[i] + length[i]) + 1) return i;
    }
  }
  const tell = (event) => {
    const i = under(event);
    if (i !== undefined) told.textContent = `${names.full[name[i]]}: ${time(length[i])}, from ${start[i] ? time(start[i]) : "0"}; ${lanes[lane[i]]}`;
  };
  let held;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.offsetX, from, to }; canvas.setPointerCapture(event.pointerId); tell(event); });
  canvas.addEventListener("pointerup", () => (held = undefined));
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return tell(event);
    const by = ((held.x - event.offsetX) / (canvas.clientWidth - gutter())) * (held.to - held.from);
    zoomTo(held.from + by, held.to + by);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, from + ((event.offsetX - gutter()) / (canvas.clientWidth - gutter())) * (to - from));
  }, { passive: false });
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };
  canvas.addEventListener("keydown", (event) => { if (keys[event.key]) { event.preventDefault(); moves[keys[event.key]](); } });
  canvas.addEventListener("dblclick", moves.all);
  all("[data-move]").forEach((button) => button.addEventListener("click", moves[button.dataset.move]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", draw);
  addEventListener("afterprint", draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
  draw();
}
