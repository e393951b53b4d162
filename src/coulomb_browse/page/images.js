/** All images in a grid: find by name, filter by group, search by images of the index or of the user, subtract others. */
import { getNumbers, job, post, upload } from "./api.js";
import * as details from "./details.js";
import { button, cosine, count, el, plural, toast } from "./dom.js";
import { Grid } from "./grid.js";
import { decided, groupsOf, index, onDecision, thumbnail, title, wantRows } from "./store.js";

const TOP = 500;
const query = { plus: [], minus: [] }; // of {position} or {upload, url, name}; lives as long as the page
const state = { text: "", grouping: "", group: -1, order: "index", side: 150, result: null, scroll: 0 };
let view = null;

const everything = () => Int32Array.from({ length: index.images }, (_, i) => i);
const GROUPINGS = { label: "Label", split: "Split", folder: "Folder", cluster: "Cluster", prediction: "Predicted label" };

export const show = (place) => {
  const stop = new AbortController();
  let sought = 0, outliers = null;
  const marked = (position) => query.plus.some((one) => one.position === position) ? "plus" : query.minus.some((one) => one.position === position) ? "minus" : null;
  const badge = (position) => {
    if (decided.file.get(position) === "drop") return { text: "drop", kind: "bad" };
    if (decided.label.has(position)) return { text: decided.label.get(position), kind: "good" };
    return null;
  };
  const grid = new Grid({ label: "Images", side: state.side, marked, badge, mark, key,
    open: (position, at) => details.open(position, grid.similarities?.[at] === undefined ? "" : `${cosine(grid.similarities[at])} to the query`, false, state.order === "outliers" ? outliers?.find((one) => one.position === position)?.reason : "") });

  const status = el("p", { class: "status", role: "status" });
  const text = el("input", { type: "search", id: "find", placeholder: "Find by name or label", "aria-label": "Find by name or label", value: state.text, spellcheck: "false", autocomplete: "off" });
  let typed = 0;
  text.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(() => { state.text = text.value; state.result = null; fill(); }, 120); });
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === "ArrowDown") { grid.element.focus(); event.preventDefault(); } });

  const filter = el("select", { id: "filter", "aria-label": "Show" });
  const fillFilter = () => {
    filter.replaceChildren(el("option", { value: "", text: "all images" }));
    for (const [name, grouping] of Object.entries(index.groupings)) {
      const part = el("optgroup", { label: GROUPINGS[name] ?? name });
      grouping.names.slice(0, 1000).forEach((group, at) => part.append(el("option", { value: `${name}:${at}`, text: `${group} (${count(grouping.counts[at])})` })));
      if (grouping.none) part.append(el("option", { value: `${name}:-1`, text: `none (${count(grouping.none)})` }));
      filter.append(part);
    }
    filter.value = state.grouping ? `${state.grouping}:${state.group}` : "";
    filter.hidden = !Object.keys(index.groupings).length;
  };
  filter.addEventListener("change", () => {
    const cut = filter.value.lastIndexOf(":");
    state.grouping = cut < 0 ? "" : filter.value.slice(0, cut);
    state.group = cut < 0 ? -1 : Number(filter.value.slice(cut + 1));
    state.result = null;
    fill();
  });
  const order = el("select", { id: "order", "aria-label": "Order" }, el("option", { value: "index", text: "in order" }), el("option", { value: "outliers", text: "least typical first" }));
  order.value = state.order;
  order.addEventListener("change", () => { state.order = order.value; state.result = null; fill(); });
  const size = el("input", { type: "range", id: "size", min: "70", max: "320", step: "10", value: state.side, "aria-label": "Size of thumbnails" });
  size.addEventListener("input", () => { state.side = grid.side = Number(size.value); grid.layout(); });
  const file = el("input", { type: "file", accept: "image/*,.heic,.heif", multiple: true, hidden: true, id: "file" });
  file.addEventListener("change", () => { if (file.files.length) byPictures([...file.files]); file.value = ""; });

  const chips = el("div", { class: "chips" });
  const bar = el("div", { class: "query", role: "group", "aria-label": "Query", hidden: true }, chips);
  place.replaceChildren(
    el("div", { class: "toolbar" }, text, filter, order, size, button("Search by a picture", () => file.click(), { title: "Or drop or paste one anywhere" }), file, status), bar, grid.element);

  const drawQuery = () => {
    bar.hidden = !query.plus.length && !query.minus.length;
    const all = [...query.plus.map((one) => ["plus", one]), ...query.minus.map((one) => ["minus", one])];
    const chip = ([kind, one]) => {
      const name = one.upload ? one.name : title(one.position);
      return el("button", { type: "button", class: `chip ${kind}`, title: `${name}: remove from the query`, "aria-label": `${kind === "plus" ? "" : "without "}${name}: remove from the query`, onclick: () => unmark(one) },
        el("img", { src: one.upload ? one.url : thumbnail(one.position), alt: "" }), el("span", { text: kind === "plus" ? "+" : "−", "aria-hidden": "true" }));
    };
    chips.replaceChildren(...all.slice(0, 24).map(chip), all.length > 24 ? el("span", { text: `and ${all.length - 24} more` }) : "",
      button(query.minus.length || query.plus.length > 1 ? "Similar to their mean" : "Find similar", search, { class: "big", id: "search", disabled: !query.plus.length, title: query.plus.length ? "Search (s)" : "Select at least one image to search for" }),
      button("Clear", clear, { id: "clear", title: "Clear the query (Escape)" }));
    grid.refresh();
  };

  function mark(position, kind) {
    const other = kind === "plus" ? "minus" : "plus", had = query[kind].length;
    query[kind] = query[kind].filter((one) => one.position !== position);
    query[other] = query[other].filter((one) => one.position !== position);
    if (query[kind].length === had) query[kind].push({ position });
    wantRows([position]).then(drawQuery);
    drawQuery();
  }
  const unmark = (one) => {
    query.plus = query.plus.filter((other) => other !== one);
    query.minus = query.minus.filter((other) => other !== one);
    drawQuery();
  };
  function clear() {
    for (const one of query.plus) if (one.url) URL.revokeObjectURL(one.url);
    query.plus = []; query.minus = [];
    const was = state.result;
    state.result = null;
    drawQuery();
    if (was) fill().then(() => { grid.element.scrollTop = state.scroll; });
  }
  async function search() {
    if (!query.plus.length) return;
    const asked = ++sought;
    try {
      const strip = ({ position, upload: key }) => key ? { upload: key } : { position };
      const began = performance.now();
      const found = await post("/search", { plus: query.plus.map(strip), minus: query.minus.map(strip), top: Math.min(TOP, index.images) });
      if (asked !== sought || stop.signal.aborted) return;
      if (!state.result) state.scroll = grid.element.scrollTop;
      state.result = found;
      found.ms = performance.now() - began;
      await fill();
    } catch (error) { toast(error.message); }
  }
  const similar = (position) => {
    query.plus = [{ position }]; query.minus = [];
    drawQuery();
    return search();
  };
  async function byPictures(files) {
    status.textContent = files.length === 1 ? "Looks at the picture …" : "Looks at the pictures …";
    const made = [];
    for (const one of files.slice(0, 20)) {
      try { made.push({ upload: await upload(one), url: URL.createObjectURL(one), name: one.name || "your picture" }); } catch (error) { toast(error.message); }
    }
    if (!made.length) { tell(); return; }
    query.plus = made; query.minus = [];
    drawQuery();
    await search();
  }
  function key(event, position) {
    if (event.key !== "s") return false;
    if (query.plus.length > 1 || query.minus.length) search(); else similar(position);
    return true;
  }

  const tell = () => {
    const n = grid.positions.length;
    status.replaceChildren(state.result
      ? el("span", {}, `the ${plural(n, "most similar image")} `, button("All images", () => { state.result = null; fill().then(() => { grid.element.scrollTop = state.scroll; }); }, { id: "all", class: "quiet" }))
      : el("span", { text: n === index.images ? plural(n, "image") : `${count(n)} of ${plural(index.images, "image")}` }));
  };

  async function fill() {
    const asked = ++sought;
    try {
      if (state.result) grid.show(Int32Array.from(state.result.positions), state.result.similarities);
      else {
        let chosen = state.text.trim() ? await getNumbers(`/find?text=${encodeURIComponent(state.text)}`) : everything();
        if (state.grouping) { const codes = await groupsOf(state.grouping); chosen = chosen.filter((position) => codes[position] === state.group); }
        if (state.order === "outliers") {
          outliers ??= await job("outliers", {}, (now) => { status.textContent = `${now.note} …`; }, stop.signal);
          if (!outliers) return;
          const allowed = new Set(chosen);
          chosen = Int32Array.from(outliers.map((one) => one.position).filter((position) => allowed.has(position)));
        }
        if (asked !== sought || stop.signal.aborted) return;
        grid.show(chosen);
      }
      empty.hidden = grid.positions.length > 0;
      tell();
    } catch (error) {
      toast(error.message);
      if (state.order !== "index") { state.order = order.value = "index"; fill(); }
    }
  }
  const empty = el("p", { class: "empty", text: "No image matches.", hidden: true });
  grid.element.append(empty);
  actions(similar, mark);
  const unlisten = onDecision(() => grid.refresh());
  fillFilter();
  drawQuery();
  const kept = state.scroll;
  fill().then(() => { if (kept && !state.result) grid.element.scrollTop = kept; });
  view = { byPictures, similar, focus: () => grid.element.focus({ preventScroll: true }) };
  return {
    focus: view.focus,
    find: () => text.focus(),
    escape: () => { if (query.plus.length || query.minus.length || state.result) clear(); },
    key: (event) => event.key === "s" && details.isOpen() ? (similar(details.current()), true) : false,
    leave: () => { if (!state.result) state.scroll = grid.element.scrollTop; stop.abort(); unlisten(); grid.close(); view = null; },
  };
};

const actions = (similar, mark) => { details.actions.similar = similar; details.actions.mark = mark; };
/** From any view: goes to the grid and searches there. */
export const searchBy = (files) => whenShown((shown) => shown.byPictures(files));
export const similarTo = (position) => whenShown((shown) => shown.similar(position));
const whenShown = (work) => {
  if (view) return work(view);
  location.hash = "#images";
  return new Promise((done) => addEventListener("hashchange", () => setTimeout(() => done(view && work(view))), { once: true }));
};
/** Shows one group of a grouping in the grid. */
export const showGroup = (grouping, group) => { Object.assign(state, { text: "", grouping, group, order: "index", result: null, scroll: 0 }); location.hash = "#images"; };
export { GROUPINGS };
