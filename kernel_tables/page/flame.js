// ---- the flame graph: a button per range and kernel; a click redraws it so that the clicked one fills the width
function startFlame(place, run) {
  const { parent, name, ms, launches, look } = read("flames")[run]; // by node, as page/step.py describes
  const above = parent.map(() => [0]); // the nodes from the root to each node, with it
  const left = parent.map(() => 0); // the ms to the left of each node
  const used = [...left]; // the ms that the children of each node take so far
  for (let i = 1; i < parent.length; i++) {
    above[i] = [...above[parent[i]], i];
    left[i] = left[parent[i]] + used[parent[i]];
    used[parent[i]] += ms[i];
  }
  const description = (i) =>
    `${names.full[name[i]]}: ${+ms[i].toPrecision(4)} ${place.dataset.unit ?? "ms per step"}, ${((100 * ms[i]) / ms[0]).toFixed(1)} % of it, ` +
    `${launches[i].toLocaleString("en", { maximumFractionDigits: 1 })} launches`;
  const show = (root) => {
    const bars = parent.flatMap((_, i) => {
      const around = above[root].includes(i); // the shown root and what is above it
      const width = around ? 1 : ms[i] / ms[root];
      if (!around && !(above[i].includes(root) && width > 0.001)) return [];
      const bar = Object.assign(document.createElement("button"), { type: "button", textContent: names.short[name[i]], title: description(i) });
      const from = around ? 0 : (left[i] - left[root]) / ms[root];
      Object.assign(bar.style, { left: `${100 * from}%`, width: `${100 * width}%`, top: `${1.5 * (above[i].length - 1)}rem`, background: looks[look[i]].background });
      bar.classList.toggle("on-dark", looks[look[i]].dark);
      bar.node = i;
      bar.addEventListener("click", () => show(i));
      return [bar];
    });
    place.style.height = `${1.5 * Math.max(...above.map(({ length }) => length))}rem`;
    const hadFocus = place.contains(document.activeElement);
    place.replaceChildren(...bars);
    if (hadFocus) bars.find((bar) => bar.node === root).focus();
    document.getElementById("flame-description").textContent = description(root);
  };
  show(0);
}
