/** Labels that look wrong: accept the suggestion, keep the given label, or give another. */
import { job, post } from "./api.js";
import * as details from "./details.js";
import { button, cosine, el, percent, plural, toast } from "./dom.js";
import { look } from "./look.js";
import { decide, decided, index, row, title, wantRows } from "./store.js";
import { waiting } from "./waiting.js";
import { Workbench } from "./workbench.js";

const NEAR = 8;

export const show = (place) => {
  const stop = new AbortController(), parts = {};
  const wait = waiting(`Looks for labels that similar ${index.kind}s contradict`);
  place.replaceChildren(wait.element);
  if (!index.groupings.label) wait.fail("This index has no labels. Give some in the view Label; index a folder per class, or a table with a column of labels, to check them here.");
  else job("label_errors", {}, wait.tell, stop.signal).then((found) => { if (found) Object.assign(parts, fill(place, found)); }).catch((error) => wait.fail(error.message));
  return { leave: () => { stop.abort(); parts.leave?.(); }, key: (event) => parts.key?.(event), focus: () => parts.focus?.() };
};

const fill = (place, found) => {
  if (!found.length) {
    place.replaceChildren(el("p", { class: "empty", text: `No label looks wrong: similar ${index.kind}s agree with all of them.` }));
    return {};
  }
  const about = new Map(found.map((one) => [one.position, one])), names = index.groupings.label.names;
  const near = el("div", { class: "near wide", role: "list", "aria-label": `Most similar ${index.kind}s and their labels` });
  const give = (label) => { const position = bench.position; decide("correction", { [position]: label }); bench.next(); };
  const accept = () => give(about.get(bench.position).suggested), keep = () => give(about.get(bench.position).label);
  const neighbors = async (position) => {
    near.replaceChildren();
    try {
      const similar = await post("/search", { plus: [{ position }], top: NEAR });
      await wantRows(similar.positions);
      if (bench.position !== position) return;
      const { label, suggested } = about.get(position);
      near.replaceChildren(...similar.positions.map((other, at) => {
        const its = row(other)?.label ?? null, kind = its === suggested ? "suggested" : its === label ? "given" : "";
        const made = el("button", { type: "button", class: "neighbor", "aria-label": `${title(other)}, similarity ${cosine(similar.similarities[at])}`, onclick: () => details.open(other, "", true) },
          look(other), el("span", { class: kind, text: its ?? "no label" }));
        return el("div", { role: "listitem" }, made);
      }));
    } catch (error) { toast(error.message); }
  };
  const card = (position) => {
    const { label, suggested, confidence, reason } = about.get(position), chosen = decided.correction.get(position);
    const other = el("select", { "aria-label": "Another label", id: "other" }, el("option", { value: "", text: "Another label …" }), names.map((name) => el("option", { value: name, text: name })));
    other.addEventListener("change", () => { if (other.value) { other.blur(); give(other.value); } });
    const option = (name, what, key, work) => {
      const made = button("", work, { class: `option ${what}`, "aria-pressed": String(chosen === name) });
      made.append(el("small", { text: what === "given" ? `given label${confidence === null ? "" : `, probability ${percent(1 - confidence)}`}` : "suggested" }), el("b", { text: name }), el("kbd", { text: key }));
      return made;
    };
    return [
      el("div", { class: "options" }, option(label, "given", "k", keep), el("span", { class: "arrow", text: "→", "aria-hidden": "true" }), option(suggested, "suggested", "a", accept), other),
      chosen !== undefined && el("p", { class: "verdict", text: chosen === label ? "You kept the label." : `You say: ${chosen}.` }),
      reason && el("p", { class: "note", text: `${reason}.` }),
      el("h3", { text: "Most similar, with their labels" }), near,
    ].filter(Boolean);
  };
  const badge = (position) => {
    const chosen = decided.correction.get(position), { label, suggested } = about.get(position);
    if (chosen === undefined) return { text: `→ ${suggested}` };
    return chosen === label ? { text: `kept: ${label}`, kind: "good" } : { text: chosen, kind: "fair" };
  };
  const bench = new Workbench({ kind: "correction", label: `${index.kind === "text" ? "Texts" : "Images"} whose label looks wrong, the most certain first`, card, badge, changed: neighbors, done: (position) => decided.correction.has(position) });
  place.replaceChildren(
    el("div", { class: "toolbar" }, el("span", { class: "lead-text", text: `${plural(found.length, "label")} that similar ${index.kind}s contradict, the most certain first` }),
      el("a", { class: "button", href: "/export/corrections.csv", download: "corrections.csv", text: "Export checked labels (CSV)" })),
    bench.element);
  bench.show(found.map((one) => one.position));
  return {
    key: (event) => {
      if (event.key === "a") accept();
      else if (event.key === "k") keep();
      else return bench.key(event);
      return true;
    },
    focus: () => bench.card.focus(),
    leave: () => bench.close(),
  };
};
