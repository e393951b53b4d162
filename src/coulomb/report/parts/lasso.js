"use strict";
/** Selects images on the map: by a loop drawn with mouse, pen or finger, or by keyboard, one by one (S) or in a circle (+, −). */
const lasso = (atlas) => {
  const { map, data, marks } = atlas;
  const MAX_SHOWN = 300, box = document.getElementById("selected"), loop = map.querySelector(".loop"), tool = document.getElementById("lasso");
  let selected = new Set(), path = null, radius = 0;

  const show = () => {
    const list = [...selected].sort((a, b) => data.labels[a] - data.labels[b] || a - b), counts = new Map();
    map.classList.toggle("selecting", list.length > 0);
    marks.forEach((mark, i) => mark.classList.toggle("selected", selected.has(i)));
    box.hidden = list.length === 0;
    for (const i of list) counts.set(atlas.className(i), (counts.get(atlas.className(i)) || 0) + 1);
    const words = [...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => (name || "no class") + " " + n);
    box.querySelector("[role=status]").textContent = list.length === 1 ? "1 image selected" : list.length + " images selected";
    box.querySelector(".counts").textContent = words.slice(0, 12).join(" · ") + (words.length > 12 ? " · …" : "") + (list.length > MAX_SHOWN ? " (the first " + MAX_SHOWN + " are shown)" : "");
    box.querySelector(".selectedlist").replaceChildren(...list.slice(0, MAX_SHOWN).map((i) => atlas.thumb(i)));
    box.querySelector("textarea").value = list.map((i) => data.ids[i]).join("\n");
  };
  const select = (set) => { selected = set; show(); };
  const clear = () => { radius = 0; loop.setAttribute("d", ""); select(new Set()); };

  const within = ([x, y], corners) => {
    let isInside = false;
    for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
      const [a, b] = corners[i], [c, d] = corners[j];
      if ((b > y) !== (d > y) && x < (c - a) * (y - b) / (d - b) + a) isInside = !isInside;
    }
    return isInside;
  };
  const outline = (corners, closed) => {
    const scale = map.clientWidth / 100;
    loop.setAttribute("d", "M" + corners.map(([x, y]) => (x * scale).toFixed(1) + " " + (y * scale).toFixed(1)).join("L") + (closed ? "Z" : ""));
  };
  map.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || (event.pointerType === "touch" && tool.getAttribute("aria-pressed") !== "true")) return;
    path = [atlas.inside(event)];
    atlas.drawn = false;
  });
  map.addEventListener("pointermove", (event) => {
    if (!path) return;
    const at = atlas.inside(event), [x, y] = path[path.length - 1];
    if (Math.hypot(at[0] - x, at[1] - y) * map.clientWidth / 100 < (path.length > 1 ? 3 : 7)) return;
    if (path.length === 1) map.setPointerCapture(event.pointerId);
    path.push(at);
    atlas.point(-1);
    outline(path, false);
  });
  const end = (event) => {
    const corners = path;
    path = null;
    if (!corners || corners.length < 3) return;
    atlas.drawn = event.type === "pointerup";
    if (event.type === "pointercancel") { loop.setAttribute("d", ""); return; }
    outline(corners, true);
    const inside = atlas.places.flatMap((spot, i) => within(spot, corners) && !marks[i].classList.contains("off") ? [i] : []);
    select(new Set(event.shiftKey ? [...selected, ...inside] : inside));
    setTimeout(() => { atlas.drawn = false; });
  };
  map.addEventListener("pointerup", end);
  map.addEventListener("pointercancel", end);
  tool.addEventListener("click", () => {
    const on = tool.getAttribute("aria-pressed") !== "true";
    tool.setAttribute("aria-pressed", String(on));
    map.classList.toggle("drawing", on);
  });

  const circle = (grow) => {
    const [x, y] = atlas.places[atlas.current];
    radius = Math.max(0, radius + (grow ? 4 : -4));
    const corners = Array.from({ length: 48 }, (_, k) => [x + radius * Math.cos(k * Math.PI / 24), y + radius * Math.sin(k * Math.PI / 24)]);
    if (radius) outline(corners, true);
    else loop.setAttribute("d", "");
    select(new Set(radius ? atlas.places.flatMap(([u, v], i) => Math.hypot(u - x, v - y) <= radius && !marks[i].classList.contains("off") ? [i] : []) : []));
  };
  map.addEventListener("keydown", (event) => {
    if (event.key === "Escape") clear();
    if (event.key.startsWith("Arrow")) radius = 0;
    if (atlas.current < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "s" || event.key === "S") {
      const next = new Set(selected);
      if (!next.delete(atlas.current)) next.add(atlas.current);
      loop.setAttribute("d", "");
      select(next);
    }
    if (event.key === "+" || event.key === "=") circle(true);
    if (event.key === "-" || event.key === "−") circle(false);
  });
  document.getElementById("clear").addEventListener("click", () => { clear(); map.focus(); });
  atlas.moved.push(() => loop.setAttribute("d", ""));  // the loop belongs to this layout; the selection stays
};
