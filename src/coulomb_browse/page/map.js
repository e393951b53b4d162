/** The map: every image is a point, close to images like it. A lasso shows its images in the grid beside it. */
import { getNumbers, job } from "./api.js";
import * as details from "./details.js";
import { button, count, el, toast } from "./dom.js";
import { Grid } from "./grid.js";
import { GROUPINGS } from "./images.js";
import { Points } from "./points.js";
import { emptyLook, isText, showText } from "./look.js";
import { cells, groupsOf, index, row, thumbnail, title, wantRows } from "./store.js";
import { waiting } from "./waiting.js";

const PALETTE = Array.from({ length: 10 }, (_, at) => `--c${at}`), OTHERS = "--untrained", CLUSTERS = 12;
const kept = { layout: "", color: "" };

export const show = (place) => {
  const stop = new AbortController();
  const wait = waiting("The map is computed once, and kept");
  place.replaceChildren(wait.element);
  const parts = { leave: () => stop.abort() };
  job("map", {}, wait.tell, stop.signal).then((answer) => { if (answer) Object.assign(parts, fill(place, answer, stop)); })
    .catch((error) => wait.fail(error.message));
  return { leave: () => { stop.abort(); parts.leave(); }, key: (event) => parts.key?.(event), escape: () => parts.escape?.(), focus: () => parts.focus?.() };
};

const fill = (place, answer, stop) => {
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `Map of ${cells(index.images)}. Arrow keys move it, plus and minus zoom, v shows the visible ${index.kind}s in the grid.`, id: "map-canvas" });
  const tip = el("div", { class: "tip", hidden: true }, emptyLook(), el("span", { class: "name" }));
  const stage = el("div", { class: "stage" }, canvas, tip);
  const caution = el("p", { class: "note" }), status = el("p", { class: "status", role: "status" }), legend = el("div", { class: "legend", role: "group", "aria-label": "Groups: press to see one" });
  const points = new Points(canvas, { picture: isText() ? null : thumbnail });
  const grid = new Grid({ label: `${isText() ? "Texts" : "Images"} of the selection`, side: 108, open: (position) => details.open(position), active: (position) => { points.pointed = position; points.draw(); } });
  const hint = el("p", { class: "empty", text: isText() ? "Draw a line around points to see their texts here." : "Draw a line around points to see their images here. Zoom in to see pictures on the map." });
  grid.element.append(hint);
  let lasso = false;

  const layouts = el("select", { id: "layout", "aria-label": "Layout" }, answer.maps.map((one) => el("option", { value: one.key, text: one.name })));
  const useLayout = async () => {
    kept.layout = layouts.value;
    caution.textContent = answer.maps.find((one) => one.key === layouts.value).caution;
    try { points.setPlaces(await getNumbers(`/map/${layouts.value}`, Uint16Array, stop.signal)); } catch (error) { if (!stop.signal.aborted) toast(error.message); }
  };
  if (answer.maps.some((one) => one.key === kept.layout)) layouts.value = kept.layout;
  layouts.addEventListener("change", useLayout);
  for (const problem of answer.problems ?? []) toast(problem);

  const colors = el("select", { id: "color", "aria-label": "Color by" });
  const offered = () => {
    const names = [...new Set([...Object.keys(index.groupings), "cluster"])];
    colors.replaceChildren(...names.map((name) => el("option", { value: name, text: `Color: ${(GROUPINGS[name] ?? name).toLowerCase()}` })), el("option", { value: "", text: "Color: none" }));
  };
  offered();
  colors.value = kept.color || Object.keys(index.groupings)[0] || "";
  const paint = async () => {
    const name = kept.color = colors.value;
    legend.replaceChildren();
    if (!name) { points.setColors(new Uint16Array(index.images), ["--c0"], null); return; }
    try {
      if (name === "cluster" && !index.groupings.cluster) {
        status.textContent = `Divides the ${index.kind}s into clusters …`;
        index.groupings.cluster = await job("cluster", { number: Math.min(CLUSTERS, index.images) }, (now) => { status.textContent = `${now.note} …`; }, stop.signal);
        if (!index.groupings.cluster) { delete index.groupings.cluster; return; }
        tell();
      }
      const codes = await groupsOf(name), { names, counts } = index.groupings[name];
      const ranked = names.map((_, at) => at).sort((a, b) => counts[b] - counts[a] || a - b), first = ranked.slice(0, PALETTE.length);
      const slot = new Uint16Array(names.length).fill(PALETTE.length);
      first.forEach((at, k) => { slot[at] = k; });
      const groups = Uint16Array.from(codes, (code) => (code < 0 ? PALETTE.length : slot[code]));
      points.setColors(groups, [...PALETTE, OTHERS], null);
      const entries = [...first.map((at) => ({ text: names[at], n: counts[at], at })), ...ranked.slice(PALETTE.length, 60).map((at) => ({ text: names[at], n: counts[at], at, other: true }))];
      legend.replaceChildren(...entries.map((entry, k) => {
        const made = button("", () => {
          const on = made.getAttribute("aria-pressed") !== "true";
          for (const other of legend.children) other.setAttribute("aria-pressed", "false");
          made.setAttribute("aria-pressed", String(on));
          // A group beyond the ten colors takes the first color while it is shown alone.
          if (on) points.setColors(Uint16Array.from(codes, (code) => (code === entry.at ? 0 : 1)), [entry.other ? "--c0" : PALETTE[k], OTHERS], new Set([0]));
          else points.setColors(groups, [...PALETTE, OTHERS], null);
        }, { class: entry.other ? "others" : `k${k}`, "aria-pressed": "false" });
        made.append(el("i"), el("span", { text: entry.text }), el("small", { text: count(entry.n) }));
        return made;
      }));
    } catch (error) { if (!stop.signal.aborted) { toast(error.message); tell(); } }
  };
  colors.addEventListener("change", paint);

  const pressed = (text, work, props) => button(text, work, props);
  const lassoButton = pressed("Lasso", () => setLasso(!lasso), { "aria-pressed": "false", title: "Draw around points (l); or hold Shift", id: "lasso" });
  const setLasso = (on) => { lasso = on; lassoButton.setAttribute("aria-pressed", String(on)); canvas.classList.toggle("lasso", on); };
  const choose = (found) => {
    points.selected = found?.length ? new Uint8Array(points.count) : null;
    for (const i of found ?? []) points.selected[i] = 1;
    points.draw();
    hint.hidden = Boolean(found?.length);
    grid.show(found ?? new Int32Array(0));
    tell();
  };
  const tell = () => { const n = grid.positions.length; status.textContent = n ? `${cells(n)} selected` : cells(index.images); };

  place.replaceChildren(
    el("div", { class: "toolbar" }, layouts, colors, lassoButton, button("Select visible", () => choose(points.visible()), { title: `Show all visible ${index.kind}s in the grid (v)`, id: "visible" }), button("Show all", () => { points.reset(); choose(null); }, { title: "Zoom out, clear the selection (0)" }), status),
    el("div", { class: "map-room" }, el("div", { class: "map-side" }, stage, legend, caution), grid.element));

  const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const held = new Map();
  let moved = 0, drawing = false;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, at(event));
    moved = 0;
    if (held.size === 1 && (lasso || event.shiftKey)) { drawing = true; points.path = [at(event)]; }
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event), before = held.get(event.pointerId);
    if (!before) { hover(now); return; }
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (drawing) { points.path.push(now); points.draw(); }
    else if (held.size === 1) points.move(now[0] - before[0], now[1] - before[1]);
    else {
      const other = [...held].find(([id]) => id !== event.pointerId)[1];
      points.zoomAt((now[0] + other[0]) / 2, (now[1] + other[1]) / 2, Math.hypot(now[0] - other[0], now[1] - other[1]) / Math.max(1, Math.hypot(before[0] - other[0], before[1] - other[1])));
    }
    held.set(event.pointerId, now);
  });
  const up = (event) => {
    if (!held.delete(event.pointerId)) return;
    if (drawing) {
      drawing = false;
      const line = points.path;
      points.path = null;
      if (moved > 10 && line.length > 2) choose(points.inside(line)); else { choose(null); }
    } else if (moved < 6 && event.type === "pointerup") {
      const found = points.nearest(...at(event), points.shown <= 140 ? 32 : 12);
      if (found >= 0) { points.pointed = found; points.draw(); details.open(found); }
    }
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; points.hovered = -1; points.draw(); });
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); points.zoomAt(...at(event), Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0018))); }, { passive: false });
  canvas.addEventListener("dblclick", (event) => points.zoomAt(...at(event), 2));

  const named = (position) => (isText() ? row(position).label ?? "" : title(position));
  const hover = ([x, y]) => {
    const found = points.nearest(x, y, points.shown <= 140 ? 32 : 10);
    if (found === points.hovered) return;
    points.hovered = found;
    points.draw();
    tip.hidden = found < 0;
    if (found < 0) return;
    const [sx, sy] = points.screen(found);
    if (isText()) showText(tip.firstChild, found); else tip.firstChild.src = thumbnail(found);
    tip.lastChild.textContent = row(found) ? named(found) : "";
    tip.style.left = `${Math.max(4, Math.min(points.width - 164, sx + 14))}px`;
    tip.style.top = `${Math.max(4, sy + 14 + 150 > points.height ? sy - 160 : sy + 14)}px`;
    wantRows([found]).then(() => { if (points.hovered === found) tip.lastChild.textContent = named(found); });
  };

  const key = (event) => {
    const step = 60, middle = [points.width / 2, points.height / 2];
    const onMap = document.activeElement === canvas;
    if (event.key === "l") setLasso(!lasso);
    else if (event.key === "v") choose(points.visible());
    else if (event.key === "0") { points.reset(); choose(null); }
    else if (event.key === "+" || event.key === "=") points.zoomAt(...middle, 1.4);
    else if (event.key === "-") points.zoomAt(...middle, 1 / 1.4);
    else if (onMap && event.key === "ArrowLeft") points.move(step, 0);
    else if (onMap && event.key === "ArrowRight") points.move(-step, 0);
    else if (onMap && event.key === "ArrowUp") points.move(0, step);
    else if (onMap && event.key === "ArrowDown") points.move(0, -step);
    else return false;
    return true;
  };
  const again = () => points.restyle();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", again);
  document.getElementById("theme").addEventListener("click", again);
  useLayout().then(paint);
  tell();
  return { key, escape: () => (lasso ? setLasso(false) : choose(null)), focus: () => canvas.focus(), leave: () => { grid.close(); dark.removeEventListener("change", again); document.getElementById("theme").removeEventListener("click", again); } };
};
