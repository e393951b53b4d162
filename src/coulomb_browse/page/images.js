/** All images, or texts, in a grid: find by name, filter by group, search by words, by images of the index or of the user, subtract others. */
import { getNumbers, job, post, upload } from "./api.js";
import * as details from "./details.js";
import { button, cosine, count, el, toast } from "./dom.js";
import { Grid } from "./grid.js";
import { isText, look } from "./look.js";
import { cells, decided, groupsOf, index, onDecision, title, wantRows } from "./store.js";

const TOP = 500, MOST_UPLOADS = 64; // as many as the server keeps
const query = { plus: [], minus: [], words: "", not: "" }; // lists of {position} or {upload, url, name}; lives as long as the page
const NOTHING = JSON.stringify(["", "", { plus: [], minus: [] }]);
const uploads = new Map(); // key → {upload, url, name}, so that the browser's Back finds them again
const state = { text: "", grouping: "", group: -1, order: "index", side: 150, result: null, asked: "", scroll: 0 }; // asked: the query of the result
let view = null;

const everything = () => Int32Array.from({ length: index.images }, (_, i) => i);
const GROUPINGS = { label: "Label", split: "Split", folder: "Folder", cluster: "Cluster", prediction: "Predicted label" };

export const show = (place) => {
  const stop = new AbortController();
  let sought = 0, outliers = null, searching = null;
  const marked = (position) => query.plus.some((one) => one.position === position) ? "plus" : query.minus.some((one) => one.position === position) ? "minus" : null;
  const badge = (position) => {
    if (decided.file.get(position) === "drop") return { text: "drop", kind: "bad" };
    if (decided.label.has(position)) return { text: decided.label.get(position), kind: "good" };
    return null;
  };
  const grid = new Grid({ label: isText() ? "Texts" : "Images", side: state.side, marked, badge, mark, key,
    open: (position, at) => details.open(position, grid.similarities?.[at] === undefined ? "" : `${cosine(grid.similarities[at])} to the query`, false, state.order === "outliers" ? outliers?.find((one) => one.position === position)?.reason : "") });

  const status = el("p", { class: "status", role: "status" });
  const text = el("input", { type: "search", id: "find", placeholder: isText() ? "Find by text or label" : "Find by name or label", "aria-label": isText() ? "Find by text or label" : "Find by name or label", value: state.text, spellcheck: "false", autocomplete: "off" });
  let typed = 0;
  text.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(() => { state.text = text.value; endSearch(); fill(); }, 120); });
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === "ArrowDown") { grid.element.focus(); event.preventDefault(); } });

  const filter = el("select", { id: "filter", "aria-label": "Show" });
  const fillFilter = () => {
    filter.replaceChildren(el("option", { value: "", text: `all ${index.kind}s` }));
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
    endSearch();
    fill();
  });
  const order = el("select", { id: "order", "aria-label": "Order" }, el("option", { value: "index", text: "in order" }), el("option", { value: "outliers", text: "least typical first" }));
  order.value = state.order;
  order.addEventListener("change", () => { state.order = order.value; endSearch(); fill(); });
  const size = el("input", { type: "range", id: "size", min: "70", max: "320", step: "10", value: state.side, "aria-label": isText() ? "Size of cards" : "Size of thumbnails" });
  size.addEventListener("input", () => { state.side = grid.side = Number(size.value); grid.layout(); });
  const file = el("input", { type: "file", accept: "image/*,.heic,.heif", multiple: true, hidden: true, id: "file" });
  file.addEventListener("change", () => { if (file.files.length) byPictures([...file.files]); file.value = ""; });

  const able = index.words.able, most = index.words.most;
  const words = el("input", { type: "search", id: "words", class: "by-words", placeholder: isText() ? "Search by meaning" : "Search by words", "aria-label": "Search by words", title: "A few words or a sentence (w)", maxlength: most, value: query.words, enterkeyhint: "search", autocomplete: "off" });
  const not = el("input", { type: "search", id: "not", class: "by-words", placeholder: "…", "aria-label": "But not these words", title: "Words that the result should be unlike", maxlength: most, value: query.not, enterkeyhint: "search", autocomplete: "off" });
  for (const field of [words, not]) {
    field.addEventListener("input", () => { query.words = words.value.trim(); query.not = not.value.trim(); drawButtons(); });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); run(); }
      else if (event.key === "ArrowDown") { event.preventDefault(); grid.element.focus(); }
    });
  }
  words.addEventListener("focus", () => { post("/job/open", {}).catch(() => null); }, { once: true }); // the first search then waits less; it says what is wrong
  const chips = el("div", { class: "chips" });
  const go = button("Search", () => run(), { class: "big", id: "search" }), reset = button("Clear", () => clear(), { id: "clear", title: "Clear the query (Escape)" });
  const bar = el("div", { class: "query", role: "search", "aria-label": "Query", hidden: true }, chips, able && [words, el("label", { class: "without" }, "but not", not)], go, reset);
  const why = el("p", { class: "missing", id: "no-words", hidden: true, text: index.words.why });
  const explain = (open = why.hidden) => { why.hidden = !open; noWords.setAttribute("aria-expanded", String(open)); };
  const noWords = button("Search by words", () => explain(), { id: "why", "aria-expanded": "false", "aria-controls": "no-words" });
  const toolbar = el("div", { class: "toolbar" }, text, filter, order, size, button("Search by a picture", () => file.click(), { title: "Or drop or paste one anywhere" }), file, !able && noWords, status);
  place.replaceChildren(...(able ? [bar, toolbar] : [toolbar, why, bar]), grid.element);

  const drawButtons = () => {
    const chosen = query.plus.length + query.minus.length, byWords = query.words || query.not || !chosen;
    bar.hidden = !able && !chosen;
    go.textContent = byWords ? "Search" : chosen > 1 ? "Similar to their mean" : "Find similar";
    go.disabled = !asks();
    go.title = asks() ? byWords ? "Search (Enter)" : "Search (s)" : `Give ${able ? "words, or " : ""}at least one ${index.kind} to search for`;
    reset.hidden = !chosen && !query.words && !query.not && !state.result;
  };
  const drawQuery = () => {
    const all = [...query.plus.map((one) => ["plus", one]), ...query.minus.map((one) => ["minus", one])];
    const chip = ([kind, one]) => {
      const name = one.upload ? one.name : title(one.position);
      return el("button", { type: "button", class: `chip ${kind}`, title: `${name}: remove from the query`, "aria-label": `${kind === "plus" ? "" : "without "}${name}: remove from the query`, onclick: () => unmark(one) },
        one.upload ? el("img", { src: one.url, alt: "" }) : look(one.position), el("span", { class: "sign", text: kind === "plus" ? "+" : "−", "aria-hidden": "true" }));
    };
    chips.replaceChildren(...all.slice(0, 24).map(chip), all.length > 24 ? el("span", { text: `and ${all.length - 24} more` }) : "");
    chips.hidden = !all.length;
    drawButtons();
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
  const asks = () => query.plus.length > 0 || query.words !== "";
  const strip = ({ position, upload: key }) => key ? { upload: key } : { position };
  const stripped = () => ({ plus: query.plus.map(strip), minus: query.minus.map(strip) });
  const key_ = () => JSON.stringify([query.words, query.not, stripped()]);
  const wordsOf = (address) => ["words", "not"].map((name) => (new URLSearchParams(address).get(name) ?? "").trim().slice(0, most));

  /** Puts the query that is shown, or that there is none, into the address: Back shows the one before, and words can be shared. */
  const remember = () => {
    const [asked, unasked, entry] = JSON.parse(state.asked || NOTHING);
    const pairs = [["words", asked], ["not", unasked]].filter(([, value]) => value);
    const to = `/${pairs.length ? `?${new URLSearchParams(pairs)}` : ""}#images`;
    const here = history.state?.query ?? { plus: [], minus: [] };
    if (`${location.pathname}${location.search}` === to.split("#")[0] && JSON.stringify(here) === JSON.stringify(entry)) return;
    history.pushState({ query: entry }, "", to);
  };
  /** Shows what the address asks for, if that is not shown already. */
  const restore = () => {
    if (stop.signal.aborted || (location.hash && location.hash !== "#images")) return;
    const [wanted, unwanted] = wordsOf(location.search), entry = history.state?.query;
    const [now, nowNot] = state.asked ? JSON.parse(state.asked) : ["", ""];
    if (!entry && wanted === now && unwanted === nowNot) return; // back from another view
    if (entry && JSON.stringify([wanted, unwanted, entry]) === (state.asked || NOTHING)) return;
    const known = (list) => (list ?? []).map((one) => one.upload ? uploads.get(one.upload) : one).filter((one) => one && (one.upload || one.position < index.images));
    Object.assign(query, { plus: known(entry?.plus), minus: known(entry?.minus), words: wanted, not: unwanted });
    words.value = wanted; not.value = unwanted;
    if ((wanted || unwanted) && !able) { explain(true); query.words = query.not = ""; }
    drawQuery();
    if (asks()) search(false); else { endSearch(false); fill().then(() => { grid.element.scrollTop = state.scroll; }); }
  };
  const endSearch = (told = true) => {
    searching?.abort();
    sought++;
    if (!state.result) return;
    state.result = null; state.asked = "";
    if (told) remember();
    drawButtons();
  };
  const empties = () => { Object.assign(query, { plus: [], minus: [], words: "", not: "" }); words.value = not.value = ""; };

  function clear() {
    empties();
    const was = state.result;
    endSearch();
    remember();
    drawQuery();
    tell();
    if (was) fill().then(() => { grid.element.scrollTop = state.scroll; });
  }
  /** Searches by words and what is selected; without both, shows everything again. */
  const run = () => {
    if (asks()) return search();
    if (query.not) toast("Say what to search for as well: what it should not be like is subtracted from that.");
    else clear();
    return null;
  };
  async function search(told = true) {
    if (!asks()) return;
    searching?.abort();
    const asked = ++sought, question = key_(), mine = searching = new AbortController();
    const options = { ...stripped(), top: Math.min(TOP, index.images) };
    try {
      let found;
      if (able && (query.words || query.not)) {
        status.textContent = "Searches …";
        grid.element.setAttribute("aria-busy", "true");
        found = await job("words", { ...options, words: query.words, not: query.not }, (now) => { if (asked === sought) status.textContent = `${now.note || "searches"} …`; }, mine.signal);
      } else found = await post("/search", options);
      if (!found || asked !== sought || stop.signal.aborted) return;
      if (!state.result) state.scroll = grid.element.scrollTop;
      state.result = found;
      state.asked = question;
      if (told) remember();
      drawButtons();
      await fill();
    } catch (error) {
      if (asked === sought && !stop.signal.aborted) { tell(); toast(error.message); }
    } finally {
      if (searching === mine) { searching = null; grid.element.removeAttribute("aria-busy"); }
    }
  }
  const similar = (position) => {
    empties();
    query.plus = [{ position }];
    drawQuery();
    return search();
  };
  async function byPictures(files) {
    status.textContent = files.length === 1 ? "Looks at the picture …" : "Looks at the pictures …";
    const made = [];
    for (const one of files.slice(0, 20)) {
      try {
        const key = await upload(one);
        if (!uploads.has(key)) uploads.set(key, { upload: key, url: URL.createObjectURL(one), name: one.name || "your picture" });
        made.push(uploads.get(key));
      } catch (error) { toast(error.message); }
    }
    for (const [old, { url }] of uploads) {
      if (uploads.size <= MOST_UPLOADS) break;
      URL.revokeObjectURL(url);
      uploads.delete(old);
    }
    if (!made.length) { tell(); return; }
    empties();
    query.plus = made;
    drawQuery();
    await search();
  }
  function key(event, position) {
    if (event.key !== "s") return false;
    if (query.plus.length > 1 || query.minus.length) run(); else similar(position);
    return true;
  }

  const tell = () => {
    const n = grid.positions.length;
    status.replaceChildren(state.result
      ? el("span", {}, `the ${count(n)} most similar ${index.kind}${n === 1 ? "" : "s"} `, button(`All ${index.kind}s`, () => { endSearch(); fill().then(() => { grid.element.scrollTop = state.scroll; }); }, { id: "all", class: "quiet" }))
      : el("span", { text: n === index.images ? cells(n) : `${count(n)} of ${cells(index.images)}` }));
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
  const empty = el("p", { class: "empty", text: `No ${index.kind} matches.`, hidden: true });
  grid.element.append(empty);
  actions(similar, mark);
  const unlisten = onDecision(() => grid.refresh());
  fillFilter();
  drawQuery();
  const kept = state.scroll;
  fill().then(() => { if (kept && !state.result) grid.element.scrollTop = kept; });
  restore();
  addEventListener("popstate", restore, { signal: stop.signal });
  view = { byPictures, similar, focus: () => grid.element.focus({ preventScroll: true }) };
  return {
    focus: view.focus,
    find: () => text.focus(),
    escape: () => { if (query.plus.length || query.minus.length || query.words || query.not || state.result) clear(); },
    key: (event) => {
      if (event.key === "s" && details.isOpen()) similar(details.current());
      else if (event.key === "w") { if (able) { words.focus(); words.select(); } else explain(true); }
      else return false;
      return true;
    },
    leave: () => { if (!state.result) state.scroll = grid.element.scrollTop; searching?.abort(); stop.abort(); unlisten(); grid.close(); view = null; },
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
export const showGroup = (grouping, group) => { Object.assign(state, { text: "", grouping, group, order: "index", result: null, asked: "", scroll: 0 }); history.replaceState(null, "", `/${location.hash}`); location.hash = "#images"; };
export { GROUPINGS };
