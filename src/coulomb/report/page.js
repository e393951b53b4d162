"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Charts: the nearest point's value under the pointer, or by the arrow keys.
  for (const plot of document.querySelectorAll(".plot")) {
    const chart = page.charts[Number(plot.dataset.chart)];
    const cursor = make("i", "cursor"), readout = make("span", "readout");
    cursor.hidden = readout.hidden = true;
    readout.setAttribute("role", "status");
    plot.append(cursor, readout);
    let at = -1;
    const show = (index) => {
      at = Math.max(0, Math.min(chart.x.length - 1, index));
      cursor.hidden = readout.hidden = false;
      cursor.style.left = readout.style.left = chart.x[at] + "%";
      cursor.style.top = readout.style.top = chart.y[at] + "%";
      readout.textContent = chart.text[at];
      const half = readout.offsetWidth / 2, x = chart.x[at] / 100 * plot.clientWidth;
      readout.style.left = Math.max(half - 44, Math.min(plot.clientWidth - half + 10, x)) + "px";
    };
    const hide = () => { cursor.hidden = readout.hidden = true; };
    plot.addEventListener("pointermove", (event) => {
      const x = (event.clientX - plot.getBoundingClientRect().left) / plot.clientWidth * 100;
      let best = 0;
      chart.x.forEach((place, i) => { if (Math.abs(place - x) < Math.abs(chart.x[best] - x)) best = i; });
      show(best);
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -chart.x.length, End: chart.x.length }[event.key];
      if (!step) return;
      event.preventDefault();
      show(at < 0 ? (step > 0 ? 0 : chart.x.length - 1) : at + step);
    });
  }

  // The map of features.
  const map = document.getElementById("atlas"), data = page.map;
  if (!map || !data) return;
  const marks = [...map.querySelectorAll("use")];
  const tip = map.querySelector(".tip"), ring = map.querySelector(".ring"), layer = map.querySelector(".pictures");
  const picked = document.querySelector(".picked"), caution = document.getElementById("caution");
  let layout = Object.keys(data.cautions)[0], places = data.places[layout].map((place) => place.slice());
  const first = document.querySelector("[data-layout][aria-pressed=true]");
  if (first && first.dataset.layout !== layout) { layout = first.dataset.layout; places = data.places[layout].map((place) => place.slice()); }
  let current = -1, kept = -1, only = -1, moving = 0;

  const className = (i) => data.labels[i] < 0 ? "" : (data.names.length ? data.names[i] : data.classes[data.mark[i]]);
  const visible = (i) => only < 0 || data.mark[i] === only;
  const place = (element, i) => {
    element.style.setProperty("--x", i % page.columns);
    element.style.setProperty("--y", Math.floor(i / page.columns));
    return element;
  };
  const thumb = (i, extra) => {
    const element = place(make("span", "thumb sheet" + (extra || "")), i);
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", (className(i) + " " + data.ids[i]).trim());
    element.title = (className(i) + " " + data.ids[i]).trim();
    return element;
  };

  const point = (i) => {
    current = i;
    if (i < 0) { tip.hidden = ring.hidden = true; return; }
    const [x, y] = places[i];
    tip.hidden = ring.hidden = false;
    ring.style.left = x + "%";
    ring.style.top = y + "%";
    place(tip.querySelector(".thumb"), i);
    tip.querySelector("b").textContent = className(i);
    tip.querySelector("b").hidden = !className(i);
    tip.querySelector(".id").textContent = data.ids[i];
    const px = x / 100 * map.clientWidth, py = y / 100 * map.clientHeight, width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(map.clientWidth - width - 4, px + 16 + width > map.clientWidth ? px - width - 16 : px + 16)) + "px";
    tip.style.top = Math.max(4, Math.min(map.clientHeight - height - 4, py - height / 2)) + "px";
  };
  const keep = (i) => {
    kept = i;
    if (i < 0) { picked.replaceChildren(make("p", "hint", "Pick an image on the map.")); return; }
    const big = make("div", "big"), near = make("div", "near");
    big.append(thumb(i));
    for (const j of data.neighbours[i]) {
      const wrong = data.labels[i] >= 0 && data.labels[j] >= 0 && data.labels[i] !== data.labels[j];
      near.append(thumb(j, wrong ? " wrong" : ""));
    }
    picked.replaceChildren(big, make("b", "", className(i)), make("span", "id", data.ids[i]), make("p", "neartitle", "Its nearest neighbours"), near);
  };
  keep(page.first);  // so that the panel shows what it is for
  kept = -1;
  const nearest = (event) => {
    const box = map.getBoundingClientRect();
    let best = -1, least = 26 * 26;
    places.forEach(([x, y], i) => {
      if (!visible(i)) return;
      const dx = x / 100 * box.width - (event.clientX - box.left), dy = y / 100 * box.height - (event.clientY - box.top);
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = i; }
    });
    return best;
  };
  map.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") point(nearest(event)); });
  map.addEventListener("pointerleave", () => point(kept));
  map.addEventListener("click", (event) => { const i = nearest(event); point(i); keep(i); });
  map.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); keep(current); }
    if (event.key === "Escape") { keep(-1); point(-1); }
    if (!way) return;
    event.preventDefault();
    const [x, y] = current < 0 ? [50, 50] : places[current];
    let best = -1, least = Infinity;
    places.forEach(([u, v], i) => {
      if (i === current || !visible(i)) return;
      const along = (u - x) * way[0] + (v - y) * way[1], aside = Math.abs((u - x) * way[1]) + Math.abs((v - y) * way[0]);
      if (current >= 0 && along <= 0) return;
      const cost = current < 0 ? Math.hypot(u - x, v - y) : along + 2 * aside;
      if (cost < least) { least = cost; best = i; }
    });
    if (best >= 0) { point(best); keep(best); }
  });

  const draw = () => marks.forEach((mark, i) => { mark.setAttribute("x", places[i][0] + "%"); mark.setAttribute("y", places[i][1] + "%"); });
  const button = document.getElementById("pictures");
  const pictures = () => {
    const on = button.getAttribute("aria-pressed") === "true";
    map.classList.toggle("pictured", on);
    layer.hidden = !on;
    layer.replaceChildren();
    if (!on) return;
    const taken = new Set(), room = 27;  // one picture a cell, so that they can be told apart
    places.forEach(([x, y], i) => {
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
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    pictures();
  });
  for (const choice of document.querySelectorAll("[data-layout]")) {
    choice.addEventListener("click", () => {
      for (const other of document.querySelectorAll("[data-layout]")) other.setAttribute("aria-pressed", String(other === choice));
      const from = places.map((spot) => spot.slice()), to = data.places[choice.dataset.layout];
      caution.textContent = data.cautions[choice.dataset.layout];
      point(-1);
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches, start = performance.now(), turn = ++moving;
      const frame = (now) => {
        if (turn !== moving) return;
        const t = still ? 1 : Math.max(0, Math.min(1, (now - start) / 700)), eased = t * t * (3 - 2 * t);
        places = to.map(([x, y], i) => [from[i][0] + (x - from[i][0]) * eased, from[i][1] + (y - from[i][1]) * eased]);
        draw();
        if (t < 1) requestAnimationFrame(frame);
        else { pictures(); point(kept); }
      };
      layer.replaceChildren();
      requestAnimationFrame(frame);
    });
  }
  for (const choice of document.querySelectorAll("[data-mark]")) {
    choice.addEventListener("click", () => {
      const mark = Number(choice.dataset.mark);
      only = only === mark ? -1 : mark;
      for (const other of document.querySelectorAll("[data-mark]")) other.setAttribute("aria-pressed", String(Number(other.dataset.mark) === only));
      map.classList.toggle("dim", only >= 0);
      marks.forEach((element, i) => element.classList.toggle("on", visible(i)));
      point(-1);
      pictures();
    });
  }
})();
