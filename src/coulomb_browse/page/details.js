/** The panel with one image or text: what it looks like, facts, and those most similar to it. */
import { post } from "./api.js";
import { bytes, button, byId, cosine, el, toast } from "./dom.js";
import { isText, look } from "./look.js";
import { decided, index, onDecision, picture, row, thumbnail, title, wantRows } from "./store.js";

const NEAR = 24;
let shown = -1, from = null;
export const actions = { similar: null, mark: null }; // set by the view of all images

/** Shows the image at `position`; `about` is one more line, such as its similarity to the query. */
export const open = async (position, about = "", focus = false, why = "") => {
  const panel = byId("details");
  if (shown < 0) from = document.activeElement;
  shown = position;
  panel.hidden = false;
  await wantRows([position]);
  if (shown !== position) return;
  const known = row(position);
  if (!known) return;
  const near = el("div", { class: "near", role: "list", "aria-label": `Most similar ${index.kind}s` });
  const facts = el("dl", { class: "about" });
  const fact = (name, value) => { if (value !== null && value !== "" && value !== undefined) facts.append(el("div", {}, el("dt", { text: name }), el("dd", { text: value }))); };
  const tell = () => {
    facts.replaceChildren();
    fact("Label", known.label);
    fact("Your label", decided.label.get(position));
    const correction = decided.correction.get(position);
    fact("Checked", correction === undefined ? null : correction === known.label ? "label kept" : `label is ${correction}`);
    fact("Duplicate", decided.file.get(position));
    fact("Pixels", known.width && known.height ? `${known.width} × ${known.height}` : null);
    if (isText()) {
      fact("Characters", known.characters > known.text.length ? `${known.characters}; the first ${known.text.length} are shown` : known.characters);
      fact("Cut", known.cut ? "longer than the encoder takes; its end does not count" : null);
    } else {
      fact("Size", known.bytes === null ? null : bytes(known.bytes));
      fact("File", known.path ?? "in a table; only its thumbnail is shown");
    }
    fact("Similarity", about);
    fact("Stands out", why);
  };
  tell();
  unlisten?.();
  unlisten = onDecision(tell);
  const image = look(position, { large: true, alt: title(position), class: "large" });
  const problem = el("p", { class: "missing", hidden: true });
  image.addEventListener("error", async () => {
    if (image.dataset.failed) return;
    image.dataset.failed = "yes";
    image.src = thumbnail(position);
    problem.hidden = false;
    problem.textContent = "The original cannot be shown; this is its thumbnail.";
    try {
      const answer = await fetch(picture(position));
      if (!answer.ok) problem.textContent = `The original cannot be shown: ${(await answer.json()).error}`;
    } catch { /* the sentence above stays */ }
  }, { once: false });
  const name = isText() ? `Row ${known.id}` : known.id.split("/").at(-1);
  panel.replaceChildren(
    el("div", { class: "details-head" }, el("h2", { text: name, title: known.id, tabindex: "-1" }), button("Close", close, { title: "Close (Escape)" })),
    el("div", { class: "frame" }, image), problem,
    el("p", { class: "row" },
      button("Similar in the grid", () => actions.similar?.(position), { title: `Show the most similar ${index.kind}s in the grid (s)` }),
      button("Select", () => actions.mark?.(position, "plus"), { title: "Add to the query" }),
      button("Subtract", () => actions.mark?.(position, "minus"), { title: "Search for what is unlike this one" }),
      known.path && button("Copy path", () => copy(known.path))),
    facts,
    el("h3", { text: "Most similar" }), near);
  if (focus) panel.querySelector("h2").focus({ preventScroll: true });
  panel.scrollTop = 0;
  try {
    const found = await post("/search", { plus: [{ position }], top: NEAR });
    if (shown !== position) return;
    near.replaceChildren(...found.positions.map((other, at) => neighbor(other, found.similarities[at])));
    wantRows(found.positions).then(() => near.querySelectorAll("button").forEach((one) => name_(one)));
  } catch (error) {
    near.replaceChildren(el("p", { class: "missing", text: error.message }));
  }
};
let unlisten = null;

const name_ = (made) => {
  const label = `${title(Number(made.dataset.position))}, similarity ${made.dataset.similarity}`;
  made.setAttribute("aria-label", label);
  made.title = label;
};
const neighbor = (position, similarity) => {
  const made = el("button", { type: "button", class: "small-tile", "data-position": position, "data-similarity": cosine(similarity), onclick: () => open(position, "", true) },
    look(position), el("span", { class: "value", text: cosine(similarity) }));
  const item = el("div", { role: "listitem" }, made);
  name_(made);
  return item;
};

const copy = async (text) => {
  try { await navigator.clipboard.writeText(text); toast("Path copied", false); } catch { toast("The browser does not allow copying; the path is shown above."); }
};

export const isOpen = () => shown >= 0;
export const current = () => shown;
export const close = () => {
  if (shown < 0) return;
  shown = -1;
  byId("details").hidden = true;
  byId("details").replaceChildren();
  unlisten?.();
  unlisten = null;
  from?.isConnected && from.focus({ preventScroll: true });
};
