/** One image or text at a time beside the grid of all that are to be decided: for label errors and for labeling. */
import { el } from "./dom.js";
import { Grid } from "./grid.js";
import { emptyLook, isText, showText } from "./look.js";
import { cells, onDecision, picture, title, wantRows } from "./store.js";

export class Workbench {
  /**
   * @param options.kind of the decisions that count as done
   * @param options.card (position) → elements under the picture
   * @param options.badge position → {text, kind} or null
   * @param options.done position → true if it is decided
   */
  constructor(options) {
    this.options = options;
    this.at = 0;
    this.image = emptyLook({ class: "large" });
    this.body = el("div", { class: "card-body" });
    this.progress = el("p", { class: "note", role: "status" });
    this.bar = el("progress", { "aria-label": "Decided", value: "0", max: "1" });
    this.card = el("section", { class: "card", tabindex: "-1", "aria-label": `${isText() ? "Text" : "Image"} to decide` }, el("div", { class: "frame" }, this.image), el("div", { class: "done" }, this.bar, this.progress), this.body);
    this.grid = new Grid({ label: options.label, side: 96, badge: options.badge, open: (_, at) => this.go(at) });
    this.element = el("div", { class: "bench" }, this.card, this.grid.element);
    this.unlisten = onDecision((kind, positions) => {
      if (kind !== options.kind) return;
      const where = positions.length === 1 ? this.positions.indexOf(positions[0]) : -1;
      if (where >= 0 && !options.done(positions[0])) this.at = where; // undone: shows it again
      this.draw();
      this.grid.refresh();
    });
  }

  show(positions) {
    this.positions = Int32Array.from(positions);
    this.grid.show(this.positions);
    const open = this.positions.findIndex((position) => !this.options.done(position));
    this.go(Math.max(0, open), false);
  }

  get position() { return this.positions?.[this.at]; }

  go(at, scroll = true) {
    if (!this.positions?.length) return;
    this.at = Math.max(0, Math.min(this.positions.length - 1, at));
    this.grid.activate(this.at, scroll);
    this.draw();
  }

  /** After a decision: the next image that is not decided, if any. */
  next() {
    const n = this.positions.length;
    for (let step = 1; step < n; step++) {
      const at = (this.at + step) % n;
      if (!this.options.done(this.positions[at])) { this.go(at); return; }
    }
    this.draw();
  }

  draw() {
    const position = this.position;
    if (position === undefined) return;
    const done = this.positions.reduce((sum, one) => sum + (this.options.done(one) ? 1 : 0), 0);
    this.bar.value = done / this.positions.length;
    this.progress.textContent = done === this.positions.length ? `All ${cells(done)} decided.` : `${done} of ${cells(this.positions.length)} decided; this is number ${this.at + 1}.`;
    if (this.shown !== position) {
      this.shown = position;
      if (isText()) showText(this.image, position); else this.image.src = picture(position);
      this.options.changed?.(position);
      const ahead = this.positions[this.at + 1];
      if (ahead !== undefined && !isText()) new Image().src = picture(ahead);
    }
    if (!isText()) this.image.alt = title(position);
    this.body.replaceChildren(...this.options.card(position));
    wantRows([position]).then(() => { if (this.position === position && !isText()) this.image.alt = title(position); });
  }

  key(event) {
    if (event.key === "ArrowRight") this.go(this.at + 1);
    else if (event.key === "ArrowLeft") this.go(this.at - 1);
    else return false;
    return true;
  }

  close() { this.unlisten(); this.grid.close(); }
}
