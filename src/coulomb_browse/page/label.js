/** Label a few images by keyboard, chosen so that they say most; then a classifier labels the rest at once. */
import { job } from "./api.js";
import * as details from "./details.js";
import { button, byId, count, el, percent, plural, toast } from "./dom.js";
import { Grid } from "./grid.js";
import { cells, decide, decided, groupsOf, index, onDecision } from "./store.js";
import { waiting } from "./waiting.js";
import { Workbench } from "./workbench.js";

const kept = { number: 200, extra: [] };

/** Labels to choose from: of the index if they are few, and those that the user has given, in the order of first use. */
const names = () => {
  const given = index.groupings.label?.names ?? [];
  return [...new Set([...(given.length <= 30 ? given : []), ...decided.label.values(), ...kept.extra])];
};

export const show = (place) => {
  let stop = new AbortController(), parts = {};
  kept.number = Math.min(kept.number, index.images);
  const begin = (number) => {
    kept.number = number;
    parts.leave?.();
    parts = {};
    stop.abort();
    stop = new AbortController();
    const wait = waiting(`Chooses ${cells(number)} that are typical and different from each other`);
    place.replaceChildren(toolbar(begin), wait.element);
    job("choose", { number }, wait.tell, stop.signal).then((found) => { if (found) parts = fill(place, found, begin, stop); }).catch((error) => wait.fail(error.message));
  };
  begin(kept.number);
  return { leave: () => { stop.abort(); parts.leave?.(); }, key: (event) => parts.key?.(event), focus: () => parts.focus?.() };
};

const toolbar = (begin, ...more) => {
  const number = el("input", { type: "number", min: "1", max: Math.min(10000, index.images), value: kept.number, id: "number", "aria-label": `How many ${index.kind}s to label` });
  const again = () => { const wanted = Math.round(Number(number.value)); if (wanted >= 1 && wanted <= Math.min(10000, index.images)) begin(wanted); else toast(`Choose from 1 to ${count(Math.min(10000, index.images))} ${index.kind}s.`); };
  number.addEventListener("change", again);
  return el("div", { class: "toolbar" }, el("label", {}, "Label ", number, ` ${index.kind}s`), ...more.filter(Boolean),
    el("a", { class: "button", href: "/export/labels.csv", download: "labels.csv", text: "Export labels (CSV)" }));
};

const fill = (place, chosen, begin, stop) => {
  const fresh = el("input", { type: "text", id: "new-label", placeholder: "new label", "aria-label": "New label", maxlength: "1000", autocomplete: "off", spellcheck: "false" });
  const give = (label) => { const position = bench.position; decide("label", { [position]: label }); bench.next(); };
  fresh.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !fresh.value.trim()) return;
    const label = fresh.value.trim();
    fresh.value = "";
    fresh.blur();
    if (!kept.extra.includes(label)) kept.extra.push(label);
    give(label);
  });
  const card = (position) => {
    const mine = decided.label.get(position), options = names().map((name, at) => {
      const made = button("", () => give(name), { class: "option", "aria-pressed": String(mine === name) });
      made.append(el("b", { text: name }), ...(at < 9 ? [el("kbd", { text: String(at + 1) })] : []));
      return made;
    });
    return [
      el("div", { class: "options" }, options, el("label", { class: "new" }, fresh, el("kbd", { text: "n" }))),
      el("p", { class: "row" }, button("Back", () => bench.go(bench.at - 1)), button("Skip", () => bench.go(bench.at + 1)), mine !== undefined && button("Remove its label", () => decide("label", { [position]: null }))),
    ];
  };
  const badge = (position) => (decided.label.has(position) ? { text: decided.label.get(position), kind: "good" } : null);
  const bench = new Workbench({ kind: "label", label: `To label: ${index.kind}s`, card, badge, done: (position) => decided.label.has(position) });
  const rest = button("Classify the rest", () => classify(), { class: "big", id: "classify", title: "By the labels so far (c)" });
  rest.append(el("kbd", { text: "c" }));
  const byNames = index.words.able && index.kind === "image" && el("input", { type: "search", id: "names", placeholder: "Or names: cat, dog", "aria-label": "Classify by the names of classes, without labels", title: "Names separated by commas, each with =WORDS if it has words of its own: cat, dog, neither=an empty room", maxlength: index.words.most, autocomplete: "off", spellcheck: "false" });
  if (byNames) byNames.addEventListener("keydown", (event) => { if (event.key === "Enter" && byNames.value.trim()) { byNames.blur(); classify(byNames.value.trim()); } });
  const ready = () => { rest.disabled = new Set(decided.label.values()).size < 2; rest.title = rest.disabled ? "Give at least two different labels first" : "By the labels so far (c)"; };
  const unlisten = onDecision(ready);
  ready();
  const body = el("div", { class: "fill" }, bench.element);
  place.replaceChildren(toolbar(begin, rest, byNames), body);
  if (!chosen.length) { body.replaceChildren(el("p", { class: "empty", text: "There is nothing to label." })); rest.hidden = true; } else bench.show(chosen);

  let results = null;
  const classify = async (classes = "") => {
    if (rest.disabled && !classes) { toast(rest.title); return; }
    const wait = waiting(classes ? `Classifies all ${index.kind}s by names` : "Classifies the rest");
    results?.leave();
    results = null;
    body.replaceChildren(wait.element);
    try {
      // With the time, the answer is computed anew: the server keeps the predictions of the last one, for the list and as a group.
      const at = Date.now();
      const answer = classes ? await job("names", { names: classes, at }, wait.tell, stop.signal) : await job("classify", { at }, wait.tell, stop.signal);
      if (!answer) return;
      if (classes) kept.extra.push(...answer.grouping.names.filter((name) => !kept.extra.includes(name))); // for the keys 1 … 9
      index.groupings.prediction = answer.grouping;
      results = await showResults(body, answer, () => { results?.leave(); results = null; body.replaceChildren(bench.element); });
    } catch (error) {
      body.replaceChildren(bench.element);
      toast(error.message);
    }
  };
  return {
    key: (event) => {
      if (event.key === "c") { classify(); return true; }
      if (results) return results.key(event);
      if (event.key === "n") { byId("new-label")?.focus(); return true; }
      const at = /^[1-9]$/.test(event.key) ? Number(event.key) - 1 : -1;
      if (at >= 0) { const name = names()[at]; if (name !== undefined && chosen.length) give(name); return true; }
      return bench.key(event);
    },
    focus: () => bench.card.focus(),
    leave: () => { unlisten(); results?.leave(); bench.close(); },
  };
};

/** The classified images, one label at a time; keys 1 … 9 correct the image with the frame. */
const showResults = async (place, answer, back) => {
  const codes = await groupsOf("prediction", true), { names: found, counts } = answer.grouping, unsure = answer.unsure.reduce((a, b) => a + b, 0);
  const probability = new Map(answer.positions.map((position, at) => [position, answer.probabilities[at]]));
  const doubtful = new Set(answer.positions.filter((_, at) => answer.unsure[at]));
  const badge = (position) => {
    if (decided.label.has(position)) return { text: `yours: ${decided.label.get(position)}`, kind: "good" };
    const text = `${found[codes[position]] ?? "?"} ${percent(probability.get(position) ?? 0)}`;
    return doubtful.has(position) ? { text: `${text}, unsure`, kind: "fair" } : { text };
  };
  const correct = (event, position) => {
    const at = /^[1-9]$/.test(event.key) ? Number(event.key) - 1 : -1, name = names()[at];
    if (at < 0 || name === undefined) return false;
    decide("label", { [position]: name });
    grid.activate(grid.active + 1);
    return true;
  };
  const grid = new Grid({ label: `Classified ${index.kind}s`, side: 140, badge, open: (position) => details.open(position), key: correct });
  const unlisten = onDecision(() => grid.refresh());
  const first = (positions) => positions.sort((a, b) => (probability.get(b) ?? 2) - (probability.get(a) ?? 2) || a - b);
  const sets = [...found.map((name, at) => ({ text: name, n: counts[at], of: () => first(answer.positions.filter((position) => codes[position] === at)) })),
    { text: "unsure", n: unsure, of: () => first(answer.positions.filter((position) => doubtful.has(position))).reverse() }];
  const tabs = sets.map((set) => {
    const made = button("", () => {
      for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab === made));
      grid.show(Int32Array.from(set.of()));
    }, { "aria-pressed": "false" });
    made.append(el("span", { text: set.text }), el("small", { text: ` ${count(set.n)}` }));
    return made;
  });
  place.replaceChildren(
    el("div", { class: "toolbar results" }, button("Back to labeling", back), el("a", { class: "button", href: "/export/predictions.csv", download: "predictions.csv", text: "Export predictions (CSV)" }),
      el("p", { class: "status", role: "status", text: `${cells(answer.positions.length)} classified by ${answer.labeled ? plural(answer.labeled, "label") : "names"}, ${count(unsure)} unsure${answer.accuracy === null ? "" : `; ${percent(answer.accuracy)} of held-out labels right`}` })),
    el("div", { class: "toolbar tabs", role: "group", "aria-label": "Predicted labels" }, tabs, el("span", { class: "note", text: `1 … 9 correct the framed ${index.kind}; then classify again.` })),
    grid.element);
  tabs[0].click();
  return { key: () => false, leave: () => { unlisten(); grid.close(); } };
};
