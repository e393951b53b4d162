/** Starts the page: views by address, keys, dropped pictures, undo, theme. */
import * as details from "./details.js";
import { byId, button, count, el, plural, toast, typing } from "./dom.js";
import * as images from "./images.js";
import { cells, index, load, undo } from "./store.js";
import { theme } from "./theme.js";

const VIEWS = {
  images: () => Promise.resolve(images),
  map: () => import("./map.js"),
  duplicates: () => import("./duplicates.js"),
  "label-errors": () => import("./label-errors.js"),
  label: () => import("./label.js"),
};
const NAMES = { images: "Images", map: "Map", duplicates: "Duplicates", "label-errors": "Label errors", label: "Label" };
let shown = null, name = "", turn = 0;

const go = async () => {
  const wanted = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "images";
  if (wanted === name) return;
  name = wanted;
  const mine = ++turn;
  shown?.leave();
  shown = null;
  details.close();
  for (const link of byId("views").children) {
    if (link.hash === `#${name}`) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "nearest" }); } else link.removeAttribute("aria-current");
  }
  document.title = `${NAMES[name]} · ${index.name} · coulomb`;
  const module = await VIEWS[name]();
  if (mine !== turn) return;
  byId("view").className = name;
  details.actions.similar = images.similarTo;
  details.actions.mark = (position, kind) => { location.hash = "#images"; setTimeout(() => details.actions.mark?.(position, kind), 50); };
  shown = module.show(byId("view"));
};

const KEYS = [
  ["Everywhere", [["1 … 5 with Alt", "the views"], ["/", "find by name"], ["u or Ctrl+Z", "undo the last decision"], ["Escape", "close, clear"], ["?", "this list"]]],
  ["Images", [["arrows, Page Up, Page Down, Home, End", "move"], ["Enter or click", "open, with its most similar images"], ["w", "search by words"], ["s", "those similar to it in the grid"], ["Space, Ctrl+click or +", "select"], ["- or −", "subtract"], ["drop or paste a picture", "search by it"]]],
  ["Map", [["arrows, + and -", "move, zoom"], ["l", "lasso"], ["v", "select what is visible"], ["0", "show all"]]],
  ["Duplicates", [["up, down", "group"], ["left, right", "image"], ["k, d", "keep, drop"], ["a", "keep the best, drop the others"]]],
  ["Label errors", [["a", "accept the suggested label"], ["k", "keep the given label"], ["left, right", "previous, next"]]],
  ["Label", [["1 … 9", "give this label"], ["n", "new label"], ["left, right", "previous, next"], ["c", "classify the rest"]]],
];
const keys = () => {
  const dialog = byId("keys");
  dialog.replaceChildren(el("div", { class: "details-head" }, el("h2", { id: "keys-title", text: "Keys" }), button("Close", () => dialog.close())),
    el("div", { class: "keys" }, KEYS.map(([title, list]) => el("section", {}, el("h3", { text: title }), el("dl", {}, list.map(([key, what]) => el("div", {}, el("dt", { text: key }), el("dd", { text: what }))))))));
  dialog.showModal();
};

const pressed = (event) => {
  if (byId("keys").open) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing(event)) { undo(); event.preventDefault(); return; }
  if (event.altKey && /^[1-5]$/.test(event.key)) { location.hash = `#${Object.keys(VIEWS)[event.key - 1]}`; event.preventDefault(); return; }
  if (event.key === "Escape") {
    if (typing(event) && event.target.value && event.target.type === "search") return;
    if (details.isOpen()) details.close();
    else if (typing(event)) event.target.blur();
    else shown?.escape?.();
    return;
  }
  if (typing(event) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (shown?.key?.(event)) event.preventDefault();
  else if (event.key === "?") keys();
  else if (event.key === "u") undo();
  else if (event.key === "/") { shown?.find?.(); event.preventDefault(); }
};

const picturesOf = (transfer) => [...(transfer?.files ?? [])].filter((file) => !file.type || file.type.startsWith("image/"));
const dropping = () => {
  const mat = byId("drop");
  let depth = 0;
  const over = (on) => { depth = on ? depth : 0; mat.hidden = !on; };
  addEventListener("dragenter", (event) => { if (event.dataTransfer?.types.includes("Files")) { depth++; over(true); } });
  addEventListener("dragleave", () => { if (--depth <= 0) over(false); });
  addEventListener("dragover", (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    over(false);
    const files = picturesOf(event.dataTransfer);
    if (files.length) images.searchBy(files); else toast("This is no picture.");
  });
  addEventListener("paste", (event) => {
    const files = picturesOf(event.clipboardData);
    if (files.length) { event.preventDefault(); images.searchBy(files); }
  });
};

const notes = () => {
  const lost = index.work.lost, told = [];
  if (index.damaged) told.push(`${plural(index.damaged, "line")} of ${index.saved_in} cannot be read, as after a crash; all other decisions are here.`);
  if (lost) told.push(`${plural(lost, "decision")} ${lost === 1 ? `is about ${index.kind === "text" ? "a text" : "an image"}` : `are about ${index.kind}s`} that the index no longer has.`);
  byId("notes").replaceChildren(...told.map((text) => el("p", { class: "note", text })));
};

const start = async () => {
  const asked = new URLSearchParams(location.search);
  for (const name of [...asked.keys()]) if (name !== "words" && name !== "not") asked.delete(name);
  history.replaceState(history.state, "", `/${asked.size ? `?${asked}` : ""}${location.hash}`); // the token does not stay in the address
  theme();
  try { await load(); } catch (error) { byId("view").replaceChildren(el("p", { class: "missing", text: error.message })); return; }
  byId("name").textContent = index.name;
  byId("facts").textContent = `${cells(index.images)}${index.encoder ? ` · ${index.encoder}` : ""}`;
  byId("facts").title = `${count(index.features)} features`;
  if (index.kind === "text") {
    NAMES.images = byId("views").firstElementChild.textContent = "Texts";
    byId("skip").textContent = "Skip to the texts";
  }
  notes();
  byId("undo").addEventListener("click", undo);
  byId("keys-button").addEventListener("click", keys);
  byId("skip").addEventListener("click", (event) => { event.preventDefault(); shown?.focus?.(); });
  addEventListener("keydown", pressed);
  addEventListener("hashchange", go);
  dropping();
  await go();
};
start();
