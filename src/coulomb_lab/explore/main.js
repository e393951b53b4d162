"use strict";
// The state, and what changes it. `app` is the state; app.redraw() draws it in the next frame.

const SPACES = { circle: "Circle", sphere: "Sphere" };
const ARROWS = { each: "on each point", anchor: "on the anchor", all: "all together" };
const KNOBS = {
  weight: [0, 1, 0.01], topK: [1, 18, 1], tauPlus: [0, 0.5, 0.01], beta: [0, 4, 0.1], alpha: [0, 1, 0.01], centerTemperature: [0.05, 2, 0.05],
};
const KNOBS_OF = { infonce: [], simple: ["weight"], hard: ["topK"], debiased: ["tauPlus"], hcl: ["beta", "tauPlus"], supcon: [], paco: ["alpha", "centerTemperature"] };

const app = {
  preset: "hard", images: 6, sphere: false, camera: LEVEL, scene: null, anchor: 0, arrows: "each", landscape: true, magnify: false,
  highlight: null, trail: [], before: null, running: false, playing: false, unseen: new Set(), magnified: 1, freeWeight: false,
  options: { loss: "infonce", temperature: 0.2, weight: 0.1, topK: 3, tauPlus: 0.1, beta: 1, alpha: 0.05, centerWeight: 1, gamma: 1, centerTemperature: 0.2, counts: null },

  redraw() { if (!app.waiting) { app.waiting = true; requestAnimationFrame(() => { app.waiting = false; drawAll(); }); } },
  mark(index) { if (app.highlight !== index) { app.highlight = index; app.redraw(); } },
  turn(right, up) { app.camera = turned(app.camera, right, up); app.redraw(); },
  choose(index) {
    if (index < app.scene.points.length) { app.anchor = index; app.highlight = null; app.redraw(); }
  },
  move(index, to) {
    const count = app.scene.points.length, name = index < count ? "points" : "centers", rows = app.scene[name].slice();
    rows[index < count ? index : index - count] = to;
    app.scene = { ...app.scene, [name]: rows };
    app.redraw();
  },
  load(preset) {
    stopDescent();
    app.preset = preset;
    app.scene = { ...sceneOf(preset, app.images, app.sphere), showClasses: Boolean(PRESETS[preset].showClasses) };
    Object.assign(app, { anchor: 0, highlight: null, trail: [], before: null });
    app.camera = app.sphere ? turned(LEVEL, 0.3, 0.32) : LEVEL;
    if (!app.freeWeight) app.options.weight = 1 / (2 * app.images - 2);
    byId("back").disabled = true;
    showKnobs();
    app.redraw();
  },
  setTau(tau) {
    app.options.temperature = clamp(tau, 0.01, 10);
    byId("temperature").value = Math.log10(app.options.temperature);
    app.redraw();
  },
  setLoss(loss) { app.options.loss = loss; app.highlight = null; showKnobs(); app.redraw(); },
};

const stage = makeStage(byId("drawing"));
const drawBars = makeBars(byId("bars"), (index) => stage.kept[index].group.focus(), app.mark);

function drawAll() {
  const scene = app.scene, { options } = app, found = anchorLoss(scene, app.anchor, options), tally = tallyOf(found);
  const shares = {}, limits = limitsOf(scene, app.anchor, options), told = { ...scene, anchor: app.anchor };
  for (const entry of tally.pushes) if (!entry.center) shares[entry.index] = entry.share;
  stage.draw(app, found, shares);
  landscape(app, byId("field"), radiusOf(app), COARSE);
  clearTimeout(app.resting);
  if (app.sphere && app.landscape) app.resting = setTimeout(() => landscape(app, byId("field"), radiusOf(app), FINE), 140);
  byId("tau").textContent = tauText(options.temperature);
  byId("temperature").setAttribute("aria-valuetext", `τ = ${tauText(options.temperature)}`);
  byId("temperature").disabled = options.loss === "simple";
  byId("who").textContent = nameOf(app.anchor, scene.points.length);
  byId("value").textContent = digits(found.value, 3);
  byId("effective").textContent = `${digits(effectiveNumber(found), 1)} of ${found.negatives.length}`;
  say(sentences(told, found, options).join(" "));
  drawBalance(byId("balance"), found, options.loss);
  drawBars(app, tally);
  drawLegend(byId("legend"), app);
  tellLimits(app, found, limits);
  drawCharts(found, limits);
  byId("alignment").textContent = digits(alignmentOf(scene.points), 3);
  byId("uniformity").textContent = digits(uniformityOf(scene.points));
  byId("meanloss").textContent = digits(batchLoss(scene, options).value, 3);
}

// Only what is in view; what comes into view is drawn then.
function drawCharts(found, limits) {
  const swept = ["losschart", "sharechart"].some((id) => !app.unseen.has(id)) ? sweep(app) : null;
  if (!app.unseen.has("losschart")) lossChart(byId("losschart"), app, found, swept, limits);
  if (!app.unseen.has("sharechart")) shareChart(byId("sharechart"), app, swept);
  if (!app.unseen.has("reachchart")) reachChart(byId("reachchart"), app, found);
  if (!app.unseen.has("planechart")) planeChart(byId("planechart"), app);
}

function watchCharts() {
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) app.unseen[isIntersecting ? "delete" : "add"](target.id);
    app.redraw();
  }, { rootMargin: "150px" });
  for (const chart of document.querySelectorAll(".chart")) watcher.observe(chart);
  addEventListener("beforeprint", () => { app.unseen.clear(); measure(); drawAll(); });
}

// At once for the eye; for a screen reader when things have come to rest.
function say(text) {
  if (byId("said").textContent === text) return;
  byId("said").textContent = text;
  clearTimeout(app.saying);
  app.saying = setTimeout(() => { byId("live").textContent = text; }, 700);
}

// Choices as radio buttons: one group a fieldset.
function choices(host, name, entries, chosen, pick) {  // chosen once more, a preset begins anew
  for (const [value, text] of entries) {
    const label = htmlNode("label", "", undefined, host), input = htmlNode("input", "", undefined, label);
    Object.assign(input, { type: "radio", name, value, checked: value === chosen });
    htmlNode("span", "", text, label);
    input.addEventListener("change", () => pick(value));
    if (name === "preset") input.addEventListener("click", () => pick(value));
  }
}

function showKnobs() {
  const { options } = app, host = byId("knobs"), [, formula, about] = LOSS_TEXT[options.loss];
  byId("formula").textContent = formula;
  byId("about").textContent = about;
  host.replaceChildren(...KNOBS_OF[options.loss].map((name) => {
    const [low, high, step] = KNOBS[name], [symbol, text] = OPTION_TEXT[name], knob = htmlNode("div", "knob");
    const label = htmlNode("label", "", `${symbol} `, knob), shown = htmlNode("output", "", "", label), input = htmlNode("input", "", undefined, knob);
    htmlNode("small", "", ` ${text}`, label);
    Object.assign(input, { type: "range", min: low, max: name === "topK" ? 2 * app.images - 2 : high, step, id: `knob-${name}` });
    input.value = options[name];
    label.htmlFor = input.id;
    const tell = () => { shown.textContent = digits(options[name], step < 1 ? (step < 0.1 ? 2 : 1) : 0); };
    input.addEventListener("input", () => {
      options[name] = Number(input.value);
      if (name === "weight") app.freeWeight = true;
      tell();
      app.redraw();
    });
    tell();
    return knob;
  }));
  if (options.loss !== "paco") return;
  const label = htmlNode("label", "check", undefined, host), input = htmlNode("input", "", undefined, label);
  Object.assign(input, { type: "checkbox", id: "longtail", checked: Boolean(options.counts) });
  label.append(" Long tail ");
  htmlNode("small", "", "A : B : C = 100 : 10 : 1 images, log π on the centers", label);
  input.addEventListener("change", () => { options.counts = input.checked ? [100, 10, 1] : null; app.redraw(); });
}

// Play: τ goes down and up through all its decades.
function play(on) {
  app.playing = on;
  byId("play").setAttribute("aria-pressed", on);
  byId("play").textContent = on ? "Pause" : "Play";
  if (!on) return;
  const start = performance.now(), phase = Math.acos(clamp((Math.log10(app.options.temperature) + 0.5) / 1.5, -1, 1));
  const frame = (now) => {
    if (!app.playing) return;
    app.setTau(10 ** (-0.5 + 1.5 * Math.cos(phase + (now - start) / 2600)));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function stopDescent() {
  app.running = false;
  byId("letgo").textContent = "Let go";
}

function letGo() {
  if (app.running) { stopDescent(); return; }
  if (!app.before) app.before = app.scene;
  app.scene = breathed(app.scene, app.sphere, randomNumbers(3));
  app.running = true;
  byId("letgo").textContent = "Hold";
  byId("back").disabled = false;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let quiet = 0, frames = 0;
  const frame = () => {
    if (!app.running) return;
    for (let k = 0; k < (still ? 900 : 2); k++) {
      const next = descend(app.scene, app.options);
      if (k % 10 === 0) app.trail.push({ u: uniformityOf(app.scene.points), a: alignmentOf(app.scene.points) });
      app.scene = next.scene;
      quiet = next.moved < 4e-4 ? quiet + 1 : 0;
    }
    app.redraw();
    if (quiet > 40 || ++frames > 1500 || still) stopDescent();
    else requestAnimationFrame(frame);
  };
  frame();
}

function setSpace(space) {
  app.sphere = space === "sphere";
  byId("stage").className = `stage ${space}`;
  byId("hint").textContent = app.sphere ? "Drag a dot to move it, the sphere to turn it. Click a dot to make it the anchor."
    : "Drag a dot along the circle. Click one to make it the anchor.";
  app.load(app.preset);
}

// A link may name a state: #preset=hard&loss=supcon&tau=0.07&space=sphere&arrows=anchor
function fromLink() {
  const asked = new URLSearchParams(location.hash.slice(1)), take = (name, known) => known.includes(asked.get(name)) ? asked.get(name) : null;
  app.preset = take("preset", Object.keys(PRESETS)) || app.preset;
  app.options.loss = take("loss", LOSSES) || app.options.loss;
  app.arrows = take("arrows", Object.keys(ARROWS)) || app.arrows;
  app.sphere = take("space", Object.keys(SPACES)) === "sphere";
  if (Number(asked.get("tau")) > 0) app.options.temperature = clamp(Number(asked.get("tau")), 0.01, 10);
}

function begin() {
  fromLink();
  const { options } = app;
  choices(byId("spaces"), "space", Object.entries(SPACES), app.sphere ? "sphere" : "circle", setSpace);
  choices(byId("arrows"), "arrow", Object.entries(ARROWS), app.arrows, (value) => { app.arrows = value; app.redraw(); });
  choices(byId("losses"), "loss", LOSSES.map((loss) => [loss, LOSS_TEXT[loss][0]]), options.loss, app.setLoss);
  choices(byId("presets"), "preset", Object.entries(PRESETS).map(([name, preset]) => [name, preset.name]), app.preset, app.load);
  for (const tau of [0.01, 0.1, 1, 10]) htmlNode("span", `at${tau * 100}`, String(tau), byId("ticks"));
  byId("temperature").addEventListener("input", (event) => { play(false); app.setTau(10 ** Number(event.target.value)); });
  byId("play").addEventListener("click", () => play(!app.playing));
  byId("letgo").addEventListener("click", letGo);
  byId("back").addEventListener("click", () => {
    stopDescent();
    Object.assign(app, { scene: app.before, before: null, trail: [] });
    byId("back").disabled = true;
    app.redraw();
  });
  byId("images").addEventListener("input", (event) => {
    app.images = Number(event.target.value);
    byId("imagecount").textContent = app.images;
    app.load(app.preset);
  });
  byId("imagecount").textContent = app.images;
  for (const name of ["landscape", "magnify"]) byId(name).addEventListener("change", (event) => { app[name] = event.target.checked; app.redraw(); });
  for (const id of ["losschart", "sharechart"]) dragTau(byId(id));
  const keys = { losskey: [["curve", "loss"], ["limit cold", "τ → 0: hardest"], ["limit hot", "τ → ∞: simple"]], sharekey: [["marker", "τ now; drag it"]], reachkey: [["curve push", "this loss"], ["limit cold", "two charges, 1/r²"]] };
  for (const [id, entries] of Object.entries(keys)) {
    for (const [name, text] of entries) {
      const span = htmlNode("span", "", undefined, byId(id)), icon = svgNode("svg", { viewBox: "0 0 24 6", "aria-hidden": "true" }, span);
      svgNode("path", { class: name, d: "M1 3H23" }, icon);
      span.append(text);
    }
  }
  byId("losscaption").textContent = "and what it tends to at both ends";
  Object.assign(byId("losschart").dataset, { label: "The loss against the temperature, with both limits" });
  Object.assign(byId("sharechart").dataset, { label: "Each negative’s share of the push against the temperature" });
  Object.assign(byId("reachchart").dataset, { label: "The push on a negative against its angle to the anchor" });
  Object.assign(byId("planechart").dataset, { label: "Alignment against uniformity" });
  listen(byId("drawing"), stage, app);
  const anew = () => { measure(); app.redraw(); };
  new ResizeObserver(anew).observe(document.querySelector("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
  watchCharts();
  setSpace(app.sphere ? "sphere" : "circle");
  app.setTau(options.temperature);
}

// The charts over τ are sliders too.
function dragTau(host) {
  const to = (event) => {
    const box = host.getBoundingClientRect(), x = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    play(false);
    app.setTau(10 ** (-2 + 3 * clamp(x, 0, 1)));
  };
  host.addEventListener("pointerdown", (event) => { if (event.button === 0) { host.setPointerCapture(event.pointerId); to(event); } });
  host.addEventListener("pointermove", (event) => { if (host.hasPointerCapture(event.pointerId)) to(event); });
}

begin();
