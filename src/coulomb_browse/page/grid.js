/** A grid of thumbnails, or of cards with texts, of any length, of which only the rows near the screen exist. */
import { cosine, el } from "./dom.js";
import { emptyLook, isText } from "./look.js";
import { row, title, wantRows } from "./store.js";
import { fetchThumbnails } from "./thumbnails.js";

const GAP = 6, FAST = 0.8; // screens per frame: thumbnails of rows that fly past are not fetched
const WIDER = 1.6, LOWER = 0.45; // cards: width compared with a thumbnail, height compared with their width
const LATER = 40; // ms: thumbnails of rows close to the screen are fetched together, after those on it
let grids = 0;

export class Grid {
  /**
   * @param options.label name for screen readers
   * @param options.open (position, i) when an image is clicked or Enter is pressed
   * @param options.mark (position, "plus" | "minus") when one is selected; null: nothing can be selected
   * @param options.badge position → {text, kind} or null, shown on the thumbnail
   * @param options.key (event, position) → true if it has handled a key
   */
  constructor(options) {
    this.options = options;
    this.name = `grid${++grids}`;
    this.positions = new Int32Array(0);
    this.similarities = null;
    this.active = -1;
    this.side = Number(options.side ?? 150);
    this.rows = new Map(); // row number → element
    this.spare = [];
    this.body = el("div", { class: "grid-body", role: "presentation" });
    this.element = el("div", { class: "grid", role: "grid", tabindex: "0", "aria-label": options.label, "aria-multiselectable": Boolean(options.mark) && "true" }, this.body);
    this.element.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.element.addEventListener("click", (event) => this.clicked(event));
    this.element.addEventListener("keydown", (event) => this.pressed(event));
    this.element.addEventListener("focus", () => { if (this.active < 0 && this.positions.length) this.activate(this.first(), false); });
    this.observer = new ResizeObserver(() => this.layout());
    this.observer.observe(this.element);
  }

  /** Shows images; `keep` leaves the scroll position. */
  show(positions, similarities = null, keep = false) {
    this.positions = positions;
    this.similarities = similarities;
    this.active = -1;
    this.element.removeAttribute("aria-activedescendant");
    this.releaseAll();
    if (!keep) this.element.scrollTop = 0;
    this.layout();
  }

  layout() {
    const style = getComputedStyle(this.element), width = this.element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (width <= 0) return;
    const top = this.first();
    const before = this.columns;
    const side = this.side * (isText() ? WIDER : 1);
    this.columns = Math.max(2, Math.round((width + GAP) / (side + GAP)));
    this.cell = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.tall = isText() ? Math.max(84, Math.round(this.cell * LOWER)) : this.cell;
    this.step = this.tall + GAP;
    this.total = Math.ceil(this.positions.length / this.columns);
    this.body.style.height = `${Math.max(0, this.total * this.step - GAP)}px`;
    this.element.style.setProperty("--cell", `${this.cell}px`);
    this.element.style.setProperty("--tall", `${this.tall}px`);
    this.element.setAttribute("aria-rowcount", this.total);
    this.element.setAttribute("aria-colcount", this.columns);
    // An image stays in its element where it can: a pointer that is on it, or about to press it, is still on it afterwards.
    if (before === this.columns) for (const [number, made] of this.rows) this.move(made, number);
    else this.releaseAll();
    if (before && before !== this.columns && top > 0) this.element.scrollTop = Math.floor(top / this.columns) * this.step;
    this.render(true);
  }

  /** The first image on the screen. */
  first() { return this.step ? Math.min(this.positions.length - 1, Math.ceil(this.element.scrollTop / this.step) * this.columns) : 0; }

  scrolled() {
    const now = this.element.scrollTop, moved = Math.abs(now - (this.before ?? now));
    this.before = now;
    const fast = moved > FAST * this.element.clientHeight;
    this.render(!fast);
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.render(true), 60);
  }

  render(pictures) {
    if (!this.step) return;
    const screen = this.element.clientHeight, from = this.element.scrollTop - screen, to = this.element.scrollTop + 2 * screen;
    const first = Math.max(0, Math.floor(from / this.step)), end = Math.min(this.total, Math.ceil(to / this.step));
    for (const [number] of this.rows) if (number < first || number >= end) this.release(number);
    const seen = [], near = []; // tiles that need their thumbnail: on the screen, and close to it
    for (let number = first; number < end; number++) {
      const made = this.rows.get(number) ?? this.place(number);
      if (!pictures || made.filled) continue;
      made.filled = true;
      const top = number * this.step - this.element.scrollTop;
      (top + this.step > 0 && top < screen ? seen : near).push(...made.tiles.filter((tile) => tile.at >= 0));
    }
    if (seen.length) this.fill(seen);
    if (!near.length) return;
    this.near = (this.near ?? []).concat(near);
    this.soon ??= setTimeout(() => {
      const tiles = this.near.filter((tile) => tile.at >= 0 && !tile.image.hasAttribute("src"));
      this.near = this.soon = null;
      if (tiles.length) this.fill(tiles);
    }, LATER);
  }

  fill(tiles) {
    const wanting = new Map();
    for (const tile of tiles) {
      const position = this.positions[tile.at];
      if (!wanting.has(position)) wanting.set(position, []);
      wanting.get(position).push(tile);
    }
    if (!isText()) fetchThumbnails([...wanting.keys()], (position, address) => {
      for (const tile of wanting.get(position)) if (tile.at >= 0 && this.positions[tile.at] === position) tile.image.src = address;
    });
    const unnamed = [...wanting.keys()].filter((position) => !row(position));
    if (unnamed.length) wantRows(unnamed).then(() => this.named());
  }

  place(number) {
    const made = this.spare.pop() ?? { element: el("div", { class: "grid-row", role: "row" }), tiles: [] };
    while (made.tiles.length > this.columns) made.tiles.pop().element.remove();
    while (made.tiles.length < this.columns) made.tiles.push(this.tile(made.element));
    made.filled = false;
    this.move(made, number);
    made.element.setAttribute("aria-rowindex", number + 1);
    made.tiles.forEach((tile, column) => {
      tile.at = number * this.columns + column;
      if (tile.at >= this.positions.length) tile.at = -1;
      tile.element.hidden = tile.at < 0;
      if (tile.at < 0) return;
      tile.element.dataset.at = tile.at;
      tile.element.dataset.position = this.positions[tile.at];
      tile.element.id = `${this.name}-${tile.at}`;
      this.decorate(tile);
    });
    this.rows.set(number, made);
    if (!made.element.isConnected) this.body.append(made.element);
    made.element.hidden = false;
    return made;
  }

  move(made, number) { made.element.style.transform = `translateY(${number * this.step}px)`; }

  tile(parent) {
    const image = emptyLook({ draggable: "false" });
    const badge = el("span", { class: "badge", hidden: true }), similarity = el("span", { class: "similarity", hidden: true });
    const marks = this.options.mark
      ? [el("span", { class: "mark plus", "data-mark": "plus", text: "+", title: "Select (space)" }), el("span", { class: "mark minus", "data-mark": "minus", text: "−", title: "Subtract (-)" })] : [];
    const element = el("div", { class: "tile", role: "gridcell" }, image, badge, similarity, ...marks);
    image.addEventListener("error", () => { if (image.hasAttribute("src")) element.classList.add("broken"); });
    parent.append(element);
    return { element, image, badge, similarity, at: -1 };
  }

  release(number) {
    const made = this.rows.get(number);
    this.rows.delete(number);
    made.element.hidden = true;
    for (const tile of made.tiles) {
      tile.image.removeAttribute("src");
      if (isText()) tile.image.textContent = "";
      tile.at = -1;
      for (const name of ["id", "data-at", "data-position", "aria-label", "title"]) tile.element.removeAttribute(name);
      tile.element.classList.remove("broken");
    }
    this.spare.push(made);
  }

  /** The last row first: the next rows are placed in the elements that were released last. */
  releaseAll() { for (const number of [...this.rows.keys()].sort((a, b) => b - a)) this.release(number); }

  decorate(tile) {
    const position = this.positions[tile.at], badge = this.options.badge?.(position) ?? null, marked = this.options.marked?.(position) ?? null;
    tile.badge.hidden = badge === null;
    if (badge !== null) { tile.badge.textContent = badge.text; tile.badge.className = `badge ${badge.kind ?? ""}`; }
    const value = this.similarities?.[tile.at];
    tile.similarity.hidden = value === undefined || value === null;
    if (!tile.similarity.hidden) tile.similarity.textContent = cosine(value);
    tile.element.classList.toggle("is-plus", marked === "plus");
    tile.element.classList.toggle("is-minus", marked === "minus");
    tile.element.classList.toggle("active", tile.at === this.active);
    if (this.options.mark) tile.element.setAttribute("aria-selected", marked === "plus" ? "true" : "false");
    if (!row(position)) return;
    if (isText()) tile.image.textContent = row(position).text;
    this.name_(tile);
  }

  name_(tile) {
    const position = this.positions[tile.at], value = this.similarities?.[tile.at], badge = this.options.badge?.(position);
    const marked = this.options.marked?.(position);
    const parts = [title(position), value === undefined || value === null ? "" : `similarity ${cosine(value)}`, badge?.text ?? "", marked === "minus" ? "subtracted" : ""];
    tile.element.setAttribute("aria-label", parts.filter(Boolean).join(", "));
    tile.element.title = title(position);
  }

  named() { for (const made of this.rows.values()) for (const tile of made.tiles) if (tile.at >= 0) this.decorate(tile); }
  /** Shows badges and selections again. */
  refresh() { this.named(); }

  activate(at, scroll = true) {
    this.active = Math.max(0, Math.min(this.positions.length - 1, at));
    if (scroll && this.step) {
      const top = Math.floor(this.active / this.columns) * this.step, screen = this.element.clientHeight;
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      else if (top + this.tall > this.element.scrollTop + screen) this.element.scrollTop = top + this.tall - screen + GAP;
    }
    this.render(true);
    this.element.setAttribute("aria-activedescendant", `${this.name}-${this.active}`);
    this.refresh();
    this.options.active?.(this.positions[this.active]);
  }

  clicked(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const at = Number(tile.dataset.at), kind = event.target.dataset.mark;
    this.activate(at, false);
    if (this.options.mark && (kind || event.ctrlKey || event.metaKey || event.shiftKey)) this.options.mark(this.positions[at], kind ?? "plus");
    else this.options.open?.(this.positions[at], at);
  }

  pressed(event) {
    if (!this.positions.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const position = this.positions[this.active], page = Math.max(1, Math.floor(this.element.clientHeight / this.step)) * this.columns;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      const to = this.active < 0 ? 0 : this.active + moves[event.key];
      if (!Number.isFinite(to) || (to >= 0 && to < this.positions.length) || Math.abs(moves[event.key]) > 1) this.activate(to);
    } else if (this.active < 0) return;
    else if (this.options.key?.(event, position)) { /* handled */ }
    else if (event.key === "Enter") this.options.open?.(position, this.active);
    else if (event.key === " " && this.options.mark) this.options.mark(position, "plus");
    else if (event.key === "-" && this.options.mark) this.options.mark(position, "minus");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  close() { this.observer.disconnect(); clearTimeout(this.rest); clearTimeout(this.soon); }
}
