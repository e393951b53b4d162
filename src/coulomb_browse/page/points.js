/** Draws up to a million points on a canvas; finds the point under the pointer and the points inside a lasso. */
const BINS = 256, PICTURES = 140; // so few on the screen are drawn as thumbnails

export class Points {
  constructor(canvas, { picture, changed }) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.picture = picture;
    this.changed = changed;
    this.images = new Map();
    this.resolved = new Map();
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.count = 0;
    this.hovered = this.pointed = -1;
    this.selected = null; // Uint8Array
    this.path = null;
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  /** A color of the style sheet as the canvas takes it: variables may hold light-dark(). */
  color(name) {
    if (!name.startsWith("--")) return name;
    if (!this.resolved.has(name)) {
      this.canvas.style.color = `var(${name})`;
      this.resolved.set(name, getComputedStyle(this.canvas).color);
    }
    return this.resolved.get(name);
  }
  /** Draws in the colors of a new theme. */
  restyle() { this.resolved.clear(); this.draw(); }

  /** @param places uint16 x and y of every point in turn */
  setPlaces(places) {
    const n = this.count = places.length / 2;
    this.x = new Float32Array(n); this.y = new Float32Array(n);
    for (let i = 0; i < n; i++) { this.x[i] = places[2 * i] / 65535; this.y[i] = places[2 * i + 1] / 65535; }
    this.start = new Int32Array(BINS * BINS + 1);
    const bin = (i) => Math.min(BINS - 1, this.y[i] * BINS | 0) * BINS + Math.min(BINS - 1, this.x[i] * BINS | 0);
    for (let i = 0; i < n; i++) this.start[bin(i) + 1]++;
    for (let b = 0; b < BINS * BINS; b++) this.start[b + 1] += this.start[b];
    this.inBin = new Int32Array(n);
    const next = this.start.slice();
    for (let i = 0; i < n; i++) this.inBin[next[bin(i)]++] = i;
    this.group ??= new Uint16Array(n);
    this.draw();
  }

  /** @param group of each point, an index into `colors`; groups outside `lit` (a Set, or null) are dimmed */
  setColors(group, colors, lit) { this.group = group; this.colors = colors; this.lit = lit; this.draw(); }

  resize() {
    const ratio = Math.min(2, devicePixelRatio || 1), box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    this.ratio = ratio; this.width = box.width; this.height = box.height;
    this.paint();
  }

  get scale() { return Math.min(this.width, this.height) * this.view.zoom; }
  screen(i) { return [(this.x[i] - this.view.x) * this.scale + this.width / 2, (this.y[i] - this.view.y) * this.scale + this.height / 2]; }
  place(sx, sy) { return [(sx - this.width / 2) / this.scale + this.view.x, (sy - this.height / 2) / this.scale + this.view.y]; }

  zoomAt(sx, sy, factor) {
    const [x, y] = this.place(sx, sy);
    this.view.zoom = Math.max(0.8, Math.min(400, this.view.zoom * factor));
    const [nx, ny] = this.place(sx, sy);
    this.view.x += x - nx; this.view.y += y - ny;
    this.draw();
  }
  move(dx, dy) {
    this.view.x = Math.max(-0.2, Math.min(1.2, this.view.x - dx / this.scale));
    this.view.y = Math.max(-0.2, Math.min(1.2, this.view.y - dy / this.scale));
    this.draw();
  }
  reset() { this.view = { x: 0.5, y: 0.5, zoom: 1 }; this.draw(); }

  /** Calls `work` with each point of the part of the map between two places. */
  within(x0, y0, x1, y1, work) {
    const clip = (v) => Math.max(0, Math.min(BINS - 1, Math.floor(v * BINS)));
    for (let row = clip(y0); row <= clip(y1); row++) {
      const from = this.start[row * BINS + clip(x0)], to = this.start[row * BINS + clip(x1) + 1];
      for (let k = from; k < to; k++) { const i = this.inBin[k]; if (this.x[i] >= x0 && this.x[i] <= x1 && this.y[i] >= y0 && this.y[i] <= y1) work(i); }
    }
  }
  visible() {
    const [x0, y0] = this.place(0, 0), [x1, y1] = this.place(this.width, this.height), found = [];
    this.within(x0, y0, x1, y1, (i) => found.push(i));
    return Int32Array.from(found).sort();
  }
  nearest(sx, sy, reach) {
    const [x, y] = this.place(sx, sy), r = reach / this.scale;
    let best = -1, least = r * r;
    this.within(x - r, y - r, x + r, y + r, (i) => { const d = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2; if (d < least) { least = d; best = i; } });
    return best;
  }
  /** The points inside a closed line through `corners` [[x, y], …] on the screen. */
  inside(corners) {
    const line = corners.map(([sx, sy]) => this.place(sx, sy)), found = [];
    const xs = line.map((p) => p[0]), ys = line.map((p) => p[1]);
    this.within(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys), (i) => {
      let odd = false;
      for (let a = 0, b = line.length - 1; a < line.length; b = a++) {
        const [ax, ay] = line[a], [bx, by] = line[b];
        if ((ay > this.y[i]) !== (by > this.y[i]) && this.x[i] < (bx - ax) * (this.y[i] - ay) / (by - ay) + ax) odd = !odd;
      }
      if (odd) found.push(i);
    });
    return Int32Array.from(found).sort();
  }

  draw() { this.waiting ??= requestAnimationFrame(() => { this.waiting = null; this.paint(); }); }

  paint() {
    if (!this.width || !this.x) return;
    const { pen, ratio } = this, color = (name) => this.color(name);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = color("--card");
    pen.fillRect(0, 0, this.width, this.height);
    const shown = this.visible(), few = shown.length <= PICTURES && this.view.zoom > 1.5 && this.picture;
    const size = Math.max(1.6, Math.min(9, 2.1 * this.view.zoom ** 0.4 * (this.count < 5000 ? 1.9 : this.count < 30000 ? 1.35 : 1))), half = size / 2;
    const scale = this.scale, left = this.width / 2 - this.view.x * scale, top = this.height / 2 - this.view.y * scale;
    const paints = this.colors ?? ["--c0"], lists = paints.map(() => []);
    for (const i of shown) lists[Math.min(this.group[i], paints.length - 1)].push(i);
    const order = paints.map((_, k) => k).sort((a, b) => (this.isLit(a) - this.isLit(b)) || (b - a));
    for (const faint of this.selected ? [true, false] : [false]) for (const k of order) {
      pen.fillStyle = color(paints[k]);
      pen.globalAlpha = (faint ? 0.16 : 0.82) * (this.isLit(k) ? 1 : 0.14);
      for (const i of lists[k]) if (!this.selected || (this.selected[i] === 1) !== faint) pen.fillRect(this.x[i] * scale + left - half, this.y[i] * scale + top - half, size, size);
    }
    pen.globalAlpha = 1;
    if (few) this.paintPictures(shown, lists, paints, color);
    for (const [i, width] of [[this.pointed, 2.5], [this.hovered, 2]]) if (i >= 0 && i < this.count) {
      const [x, y] = this.screen(i);
      pen.lineWidth = width; pen.strokeStyle = color("--ink");
      pen.beginPath(); pen.arc(x, y, few ? 38 : size + 4, 0, 7); pen.stroke();
    }
    if (this.path?.length > 1) {
      pen.beginPath();
      this.path.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
      pen.globalAlpha = 0.1; pen.fillStyle = color("--trained"); pen.fill();
      pen.globalAlpha = 1; pen.lineWidth = 1.8; pen.strokeStyle = color("--trained"); pen.stroke();
    }
    this.shown = shown.length;
    this.changed?.(shown.length);
  }
  isLit(k) { return !this.lit || this.lit.has(k); }

  paintPictures(shown, lists, paints, color) {
    const side = 58, { pen } = this;
    lists.forEach((list, k) => list.forEach((i) => {
      let image = this.images.get(i);
      if (!image) {
        if (this.images.size > 600) this.images.clear();
        image = new Image();
        image.src = this.picture(i);
        image.onload = () => this.draw();
        this.images.set(i, image);
      }
      if (!image.complete || !image.naturalWidth) return;
      const [x, y] = this.screen(i), cut = Math.min(image.naturalWidth, image.naturalHeight);
      pen.globalAlpha = this.isLit(k) && (!this.selected || this.selected[i]) ? 1 : 0.25;
      pen.fillStyle = color(paints[k]);
      pen.fillRect(x - side / 2 - 2, y - side / 2 - 2, side + 4, side + 4);
      pen.drawImage(image, (image.naturalWidth - cut) / 2, (image.naturalHeight - cut) / 2, cut, cut, x - side / 2, y - side / 2, side, side);
    }));
    pen.globalAlpha = 1;
  }
}
