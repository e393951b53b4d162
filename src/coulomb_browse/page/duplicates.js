/** Groups of near-duplicates side by side: keep or drop each image. Files are never touched; the list can be exported. */
import { job } from "./api.js";
import * as details from "./details.js";
import { button, bytes, cosine, count, el, plural } from "./dom.js";
import { isText, look } from "./look.js";
import { cells, decide, decided, index, onDecision, row, title, wantRows } from "./store.js";
import { waiting } from "./waiting.js";

const PAGE = 20, MOST = 24; // groups on the screen, images of a group
const kept = { above: 0.95, page: 0 };

export const show = (place) => {
  let stop = new AbortController(), parts = {};
  const begin = () => {
    parts.leave?.();
    parts = {};
    stop.abort();
    stop = new AbortController();
    const wait = waiting(`Compares all pairs of ${index.kind}s`), signal = stop.signal;
    place.replaceChildren(toolbar(begin), wait.element);
    job("duplicates", { above: kept.above }, wait.tell, signal)
      .then((answer) => { if (answer) parts = fill(place, answer.groups, begin); })
      .catch((error) => wait.fail(error.message));
  };
  begin();
  return { leave: () => { stop.abort(); parts.leave?.(); }, key: (event) => parts.key?.(event), focus: () => parts.focus?.() };
};

const toolbar = (begin, ...more) => {
  const above = el("input", { type: "number", id: "above", min: "0.5", max: "1", step: "0.01", value: kept.above, "aria-label": "Least similarity" });
  above.addEventListener("change", () => { const value = Number(above.value); if (value > 0 && value <= 1) { kept.above = value; kept.page = 0; begin(); } else above.value = kept.above; });
  return el("div", { class: "toolbar" }, el("label", {}, "Similarity at least ", above), ...more);
};

/** How an image differs from the best of its group, in words. */
const differences = (position, best) => {
  const one = row(position), other = row(best);
  if (!one || !other) return "";
  if (one.sha256 && one.sha256 === other.sha256) return "an exact copy";
  const told = [];
  if (one.width && other.width) {
    const share = one.width * one.height / (other.width * other.height);
    if (share !== 1) told.push(share < 1 ? `${Math.max(1, Math.round(100 * share))}% of the pixels` : `${share.toFixed(1)} times the pixels`);
    else if (one.width !== other.width) told.push("another shape");
  }
  if (isText()) {
    const more = one.characters - other.characters;
    if (more) told.push(`${plural(Math.abs(more), "character")} ${more < 0 ? "shorter" : "longer"}`);
  } else if (one.bytes !== null && other.bytes !== null && one.bytes !== other.bytes) told.push(`${bytes(Math.abs(one.bytes - other.bytes))} ${one.bytes < other.bytes ? "smaller" : "larger"}`);
  if (one.label !== other.label) told.push(`label ${one.label ?? "none"} instead of ${other.label ?? "none"}`);
  return told.join(", ");
};

const fill = (place, groups, begin) => {
  for (const group of groups) group.all = [[group.keep, 1, 1, `keep: ${group.reason}`], ...group.members.map(([position, similarity, keep, reason]) => [position, similarity, keep, keep ? `keep too: ${reason}` : `a copy; the other is kept: ${reason}`])];
  const images = groups.reduce((sum, group) => sum + group.all.length, 0);
  const list = el("div", { class: "groups", tabindex: "0", role: "list", "aria-label": "Groups of near-duplicates" }), status = el("p", { class: "status", role: "status" });
  const pages = Math.max(1, Math.ceil(groups.length / PAGE));
  kept.page = Math.min(kept.page, pages - 1);
  let at = kept.page * PAGE, member = 0, cards = [];

  const suggestion = (group) => Object.fromEntries(group.all.map(([position, , keep]) => [position, keep ? "keep" : "drop"]));
  const tell = () => {
    let drop = 0, size = 0;
    for (const [position, value] of decided.file) if (value === "drop") { drop++; size += row(position)?.bytes ?? 0; }
    status.textContent = `${plural(groups.length, "group")} of ${cells(images)}; ${count(drop)} to drop`;
  };
  const mark = (value) => {
    const [position] = groups[at].all[member];
    decide("file", { [position]: decided.file.get(position) === value ? null : value });
    if (member + 1 < groups[at].all.length) focusOn(at, member + 1);
  };
  const apply = (number) => decide("file", suggestion(groups[number]));

  const draw = () => {
    const first = kept.page * PAGE, shown = groups.slice(first, first + PAGE);
    cards = [];
    list.replaceChildren(...shown.map((group, k) => {
      const number = first + k;
      const made = group.all.slice(0, MOST).map(([position, similarity, , reason], j) => card(number, j, position, similarity, group.keep, reason));
      cards.push(made);
      const element = el("article", { class: "group", role: "listitem", "aria-label": `Group ${number + 1} of ${groups.length}, ${cells(group.all.length)}` },
        el("div", { class: "group-head" }, el("h3", { text: `Group ${number + 1} of ${groups.length}` }), el("small", { text: cells(group.all.length) }),
          button("Keep the best, drop the others", () => { focusOn(number, 0, false); apply(number); }, { title: "a" }),
          button("Keep all", () => decide("file", Object.fromEntries(group.all.map(([position]) => [position, "keep"]))))),
        el("div", { class: "side-by-side" }, made.map((one) => one.element), group.all.length > MOST && el("p", { class: "note", text: `and ${group.all.length - MOST} more, which the buttons above include` })));
      return element;
    }), pages > 1 && el("p", { class: "row pager" },
      button("Previous groups", () => turn(kept.page - 1), { disabled: kept.page === 0 }), el("span", { text: `${kept.page + 1} of ${pages}` }), button("More groups", () => turn(kept.page + 1), { disabled: kept.page === pages - 1 })));
    list.scrollTop = 0;
    const wanted = shown.flatMap((group) => group.all.slice(0, MOST).map(([position]) => position));
    wantRows(wanted).then(refresh);
    refresh();
  };
  const card = (number, j, position, similarity, best, reason) => {
    const name = el("b"), facts = el("span", { class: "facts-line" }), difference = el("span", { class: "difference" });
    const image = look(position, { large: true, loading: "lazy" });
    const keep = button("Keep", () => { focusOn(number, j, false); decide("file", { [position]: decided.file.get(position) === "keep" ? null : "keep" }); }, { class: "keep" });
    const drop = button("Drop", () => { focusOn(number, j, false); decide("file", { [position]: decided.file.get(position) === "drop" ? null : "drop" }); }, { class: "drop" });
    const open = el("button", { type: "button", class: "plain", "aria-label": `Show ${title(position)}`, onclick: () => { focusOn(number, j, false); details.open(position); } }, image);
    const element = el("div", { class: "copy" }, open, name, facts, difference, el("div", { class: "row" }, keep, drop));
    const refreshed = () => {
      const known = row(position), value = decided.file.get(position);
      element.classList.toggle("dropped", value === "drop");
      element.classList.toggle("kept", value === "keep");
      element.classList.toggle("active", number === at && j === member);
      keep.setAttribute("aria-pressed", String(value === "keep"));
      drop.setAttribute("aria-pressed", String(value === "drop"));
      if (!known) return;
      name.textContent = isText() ? `Row ${known.id}` : known.id;
      name.title = known.path ?? known.id;
      facts.textContent = [...(isText() ? [plural(known.characters, "character")] : [known.width ? `${known.width} × ${known.height}` : "", known.bytes === null ? "" : bytes(known.bytes)]), position === best ? "" : `similarity ${cosine(similarity)}`].filter(Boolean).join(" · ");
      difference.textContent = [reason, position === best ? "" : differences(position, best)].filter(Boolean).join("; ");
      open.setAttribute("aria-label", `Show ${isText() ? title(position) : known.id}`);
      for (const [one, word] of [[keep, "Keep"], [drop, "Drop"]]) one.setAttribute("aria-label", `${word} ${known.id}`);
    };
    return { element, refresh: refreshed };
  };
  const refresh = () => { for (const group of cards) for (const one of group) one.refresh(); tell(); };
  const turn = (page) => { kept.page = Math.max(0, Math.min(pages - 1, page)); at = kept.page * PAGE; member = 0; draw(); list.focus({ preventScroll: true }); };
  const focusOn = (number, j, scroll = true) => {
    if (number < 0 || number >= groups.length) return;
    at = number;
    member = Math.max(0, Math.min(Math.min(MOST, groups[at].all.length) - 1, j));
    const page = Math.floor(at / PAGE);
    if (page !== kept.page) { kept.page = page; draw(); }
    refresh();
    if (scroll) cards[at - page * PAGE]?.[member]?.element.scrollIntoView({ block: "nearest", inline: "nearest" });
    list.setAttribute("aria-label", `Groups of near-duplicates, at group ${at + 1}, ${index.kind} ${member + 1}`);
  };

  const all = button("Keep the best in all groups", () => {
    const values = Object.assign({}, ...groups.map(suggestion));
    decide("file", Object.fromEntries(Object.entries(values).filter(([position]) => !decided.file.has(Number(position)))));
  }, { title: "Keep the best and drop the others, where you have not decided; one undo takes it back" });
  place.replaceChildren(toolbar(begin, groups.length > 0 && all,
    el("a", { class: "button", href: "/export/files.csv", download: "files.csv", text: "Export list (CSV)" }), status), list);
  if (!groups.length) list.replaceChildren(el("p", { class: "empty", text: `No two of the ${cells(index.images)} are at least ${kept.above} similar.` }));
  else draw();
  tell();
  const unlisten = onDecision((kind) => { if (kind === "file") refresh(); });
  return {
    key: (event) => {
      if (!groups.length) return false;
      if (event.key === "k") mark("keep");
      else if (event.key === "d") mark("drop");
      else if (event.key === "a") { apply(at); focusOn(at + 1, 0); }
      else if (event.key === "ArrowDown") focusOn(at + 1, 0);
      else if (event.key === "ArrowUp") focusOn(at - 1, 0);
      else if (event.key === "ArrowRight") focusOn(at, member + 1);
      else if (event.key === "ArrowLeft") focusOn(at, member - 1);
      else if (event.key === "Enter" && event.target === list) details.open(groups[at].all[member][0]);
      else return false;
      return true;
    },
    focus: () => list.focus(),
    leave: unlisten,
  };
};
