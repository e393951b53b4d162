"use strict";
/** The map of features: pointing, arrow keys, pinning an image, layouts and pictures. Returns null if the page has no map. */
const atlas = (page) => {
  const map = document.getElementById("atlas"), data = page.map;
  if (!map || !data) return null;
  const marks = [...map.querySelectorAll("use")];
  const tip = map.querySelector(".tip"), ring = map.querySelector(".ring"), layer = map.querySelector(".pictures");
  const picked = document.querySelector(".picked"), caution = document.getElementById("caution");
  const self = { map, data, marks, places: data.places[data.layout].map((spot) => spot.slice()), current: -1, pinned: -1, moved: [] };
  let moving = 0, visible = () => true;

  self.className = (i) => data.class[i] < 0 ? "" : data.classes[data.class[i]];
  const place = (element, i) => {
    element.style.setProperty("--x", i % page.columns);
    element.style.setProperty("--y", Math.floor(i / page.columns));
    return element;
  };
  self.thumb = (i, extra) => {
    const element = place(make("span", "thumb sheet" + (extra || "")), i);
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", (self.className(i) + " " + data.ids[i]).trim());
    element.title = (self.className(i) + " " + data.ids[i]).trim();
    return element;
  };
  self.point = (i) => {
    self.current = i;
    if (i < 0) { tip.hidden = ring.hidden = true; return; }
    const [x, y] = self.places[i];
    tip.hidden = ring.hidden = false;
    ring.style.left = x + "%";
    ring.style.top = y + "%";
    place(tip.querySelector(".thumb"), i);
    tip.querySelector("b").textContent = self.className(i);
    tip.querySelector("b").hidden = !self.className(i);
    tip.querySelector(".id").textContent = data.ids[i];
    const px = x / 100 * map.clientWidth, py = y / 100 * map.clientHeight, width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(map.clientWidth - width - 4, px + 16 + width > map.clientWidth ? px - width - 16 : px + 16)) + "px";
    tip.style.top = Math.max(4, Math.min(map.clientHeight - height - 4, py - height / 2)) + "px";
  };
  self.pin = (i) => {
    self.pinned = i;
    if (i < 0) { picked.replaceChildren(make("p", "hint", "Select an image on the map.")); return; }
    const big = make("div", "big"), near = make("div", "near");
    big.append(self.thumb(i));
    for (const j of data.neighbors[i]) {
      const wrong = data.labels[i] >= 0 && data.labels[j] >= 0 && data.labels[i] !== data.labels[j];
      near.append(self.thumb(j, wrong ? " wrong" : ""));
    }
    picked.replaceChildren(big, make("b", "", self.className(i)), make("span", "id", data.ids[i]), make("p", "neartitle", "Nearest neighbors"), near);
  };
  self.pin(page.first);  // an example in the panel
  self.pinned = -1;
  self.inside = (event) => {
    const box = map.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width * 100, (event.clientY - box.top) / box.height * 100];
  };
  self.nearest = (event) => {
    const [u, v] = self.inside(event), scale = map.clientWidth / 100;
    let best = -1, least = 26;
    self.places.forEach(([x, y], i) => {
      const far = Math.hypot(x - u, y - v) * scale;
      if (visible(i) && far < least) { least = far; best = i; }
    });
    return best;
  };
  const walk = (way) => {
    const [x, y] = self.current < 0 ? [50, 50] : self.places[self.current];
    let best = -1, least = Infinity;
    self.places.forEach(([u, v], i) => {
      if (i === self.current || !visible(i)) return;
      const along = (u - x) * way[0] + (v - y) * way[1], aside = Math.abs((u - x) * way[1]) + Math.abs((v - y) * way[0]);
      if (self.current >= 0 && along <= 0) return;
      const cost = self.current < 0 ? Math.hypot(u - x, v - y) : along + 2 * aside;
      if (cost < least) { least = cost; best = i; }
    });
    if (best >= 0) { self.point(best); self.pin(best); }
  };
  map.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch" && !event.buttons) self.point(self.nearest(event)); });
  map.addEventListener("pointerleave", () => self.point(self.pinned));
  map.addEventListener("click", (event) => {
    if (self.drawn) { self.drawn = false; return; }  // this click ended a lasso
    const i = self.nearest(event);
    self.point(i);
    self.pin(i);
  });
  map.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); self.pin(self.current); }
    if (event.key === "Escape") { self.pin(-1); self.point(-1); }
    if (way) { event.preventDefault(); walk(way); }
  });

  const button = document.getElementById("pictures");
  self.pictures = () => {
    const on = button.getAttribute("aria-pressed") === "true";
    map.classList.toggle("pictured", on);
    layer.hidden = !on;
    layer.replaceChildren();
    if (!on) return;
    const taken = new Set(), room = 27;  // one picture per cell, without overlap
    self.places.forEach(([x, y], i) => {
      if (!visible(i)) return;
      const cell = Math.floor(x / 100 * map.clientWidth / room) + ":" + Math.floor(y / 100 * map.clientHeight / room);
      if (taken.has(cell)) return;
      taken.add(cell);
      const element = place(make("span", "thumb sheet"), i);
      element.style.left = x + "%";
      element.style.top = y + "%";
      layer.append(element);
    });
  };
  self.show = (test) => { visible = test; self.point(-1); self.pictures(); };
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    self.pictures();
  });
  const draw = () => marks.forEach((mark, i) => { mark.setAttribute("x", self.places[i][0] + "%"); mark.setAttribute("y", self.places[i][1] + "%"); });
  const glide = (to) => {
    const from = self.places.map((spot) => spot.slice()), start = performance.now(), turn = ++moving;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const frame = (now) => {
      if (turn !== moving) return;
      const t = still ? 1 : Math.max(0, Math.min(1, (now - start) / 700)), eased = t * t * (3 - 2 * t);
      self.places = to.map(([x, y], i) => [from[i][0] + (x - from[i][0]) * eased, from[i][1] + (y - from[i][1]) * eased]);
      draw();
      if (t < 1) requestAnimationFrame(frame);
      else { self.pictures(); self.point(self.pinned); }
    };
    layer.replaceChildren();
    requestAnimationFrame(frame);
  };
  for (const choice of document.querySelectorAll("[data-layout]")) {
    choice.addEventListener("click", () => {
      press("[data-layout]", choice);
      caution.textContent = data.cautions[choice.dataset.layout];
      self.point(-1);
      for (const listener of self.moved) listener();
      glide(data.places[choice.dataset.layout]);
    });
  }
  return self;
};

/** Marks one of the buttons that match the selector as pressed. */
const press = (selector, pressed) => {
  for (const other of document.querySelectorAll(selector)) other.setAttribute("aria-pressed", String(other === pressed));
};
