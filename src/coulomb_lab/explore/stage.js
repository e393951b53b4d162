"use strict";
// The picture: circle or sphere, points, arrows.

const ARROW_REACH = 0.95;  // radians for a gradient (times τ) of 1
const radiusOf = (state) => state.sphere ? 146 : 126;

function projected(state, v, out = 1) {
  const [x, y, depth] = seen(state.camera, v), radius = radiusOf(state) * out;
  return { x: x * radius, y: -y * radius, depth: state.sphere ? depth : 1 };
}

// The force on the anchor or on a point, as tangent vectors: minus the gradient, times τ. {at, step, kind, index}
function forcesOf(state, found) {
  const { scene, anchor } = state, z = scene.points[anchor], forces = [], tau = 1 / found.scale;
  if (state.arrows === "all") {
    const batch = batchLoss(scene, state.options), by = -scene.points.length * tau;
    scene.points.forEach((at, index) => forces.push({ at, step: times(batch.points[index], by / 2), kind: "net", index, lane: 0 }));
    if (state.options.loss === "paco") scene.centers.forEach((at, c) => forces.push({ at, step: times(batch.centers[c], by / 2), kind: "net", index: c, lane: 0 }));
    return forces;
  }
  const { pushes, pulls } = tallyOf(found);
  let net = [0, 0, 0];
  const each = (entry, kind, lane) => {
    const other = entry.center ? scene.centers[entry.index] : scene.points[entry.index];
    const size = entry.weight * (entry.center ? found.centerScale * tau : 1), onAnchor = times(tangent(z, other), -size);
    const sort = entry.weight < 0 ? "pull" : kind;
    net = plus(net, onAnchor);
    if (state.arrows === "anchor") forces.push({ at: z, step: onAnchor, kind: sort, index: anchor, from: entry, lane, lanes: pushes.length });
    else forces.push({ at: other, step: times(tangent(other, z), -size), kind: sort, index: entry.index, from: entry, lane: 0 });
  };
  pushes.forEach((entry, k) => each(entry, "push", k));
  pulls.forEach((entry, k) => each(entry, "pull", -k - 1));
  forces.push({ at: z, step: net, kind: "net", index: anchor, lane: state.arrows === "anchor" ? -pulls.length - 2 : -1 });
  return forces;
}

// A curved arrow along the great circle; on the circle beside it, in lanes: outside from 0, inside from −1.
function arrowPath(state, force, by) {
  const angle = norm(force.step) * by, pieces = 14;
  if (angle < 0.012) return null;
  const spacing = Math.min(5.6, 36 / Math.max(1, force.lanes || 1));
  const out = state.sphere ? 1 : 1 + (force.lane >= 0 ? 17 + spacing * force.lane : -11 + 5.6 * force.lane) / radiusOf(state);
  const from = state.sphere ? 0.085 / norm(force.step) : 0;  // on the sphere an arrow begins at the edge of its dot
  const trace = Array.from({ length: pieces + 1 }, (_, k) => projected(state, walk(force.at, times(force.step, from + by * k / pieces)), out));
  const length = trace.slice(1).reduce((sum, p, k) => sum + Math.hypot(p.x - trace[k].x, p.y - trace[k].y), 0);
  const head = Math.min(9, 2.5 + length * 0.32), end = trace[pieces];
  let cut = pieces;
  while (cut > 0 && Math.hypot(trace[cut].x - end.x, trace[cut].y - end.y) < head) cut--;
  const base = trace[cut], way = Math.hypot(end.x - base.x, end.y - base.y) || 1;
  const [ux, uy] = [(end.x - base.x) / way, (end.y - base.y) / way], neck = { x: end.x - ux * head, y: end.y - uy * head };
  const line = [...trace.slice(0, cut + 1), neck], w = head * 0.52, t = (x) => x.toFixed(1);
  return {
    shaft: `M${line.map((p) => `${t(p.x)} ${t(p.y)}`).join("L")}`,
    tip: `M${t(end.x)} ${t(end.y)}L${t(neck.x - uy * w)} ${t(neck.y + ux * w)}L${t(neck.x + uy * w)} ${t(neck.y - ux * w)}Z`,
    depth: (trace[0].depth + end.depth) / 2,
  };
}

function makeStage(svg) {
  const ball = svgNode("circle", { class: "ball", cx: 0, cy: 0 }, svg), net = pathLayer(svg, "graticule");
  const links = pathLayer(svg, "links"), shafts = pathLayer(svg, "shafts"), dots = svgNode("g", { class: "dots" }, svg);
  const crown = svgNode("g", { class: "dot crown", "aria-hidden": "true" }, svg), tips = pathLayer(svg, "tips"), kept = [];

  function dotNode(k) {
    if (kept[k]) return kept[k];
    const group = svgNode("g", { class: "dot", tabindex: "0", role: "button" }, dots);
    svgNode("circle", { class: "hit", r: 20 }, group);
    svgNode("circle", { class: "halo", r: 15 }, group);
    svgNode("path", { class: "mark" }, group);
    const label = svgNode("text", { y: 3.6 }, group);
    kept[k] = { group, mark: group.querySelector(".mark"), label };
    return kept[k];
  }

  function drawGlobe(state) {
    net.begin();
    if (state.sphere) {
      const circles = [];
      for (let k = 0; k < 6; k++) circles.push((t) => [Math.sin(t) * Math.cos(k * Math.PI / 6), Math.cos(t), Math.sin(t) * Math.sin(k * Math.PI / 6)]);
      for (let k = 1; k < 6; k++) circles.push((t) => [Math.sin(k * Math.PI / 6) * Math.cos(t), Math.cos(k * Math.PI / 6), Math.sin(k * Math.PI / 6) * Math.sin(t)]);
      for (const circle of circles) split(Array.from({ length: 65 }, (_, k) => projected(state, circle(k * Math.PI / 32))), net, "");
    }
    net.end();
  }

  // A curve in two pieces, before and behind the globe.
  function split(trace, layer, name) {
    const d = { front: "", back: "" };
    for (let k = 1; k < trace.length; k++) {
      const [a, b] = [trace[k - 1], trace[k]], side = a.depth + b.depth >= 0 ? "front" : "back";
      d[side] += `M${a.x.toFixed(1)} ${a.y.toFixed(1)}L${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
    }
    for (const side of ["back", "front"]) if (d[side]) layer.add(d[side], `${name} ${side}`);
  }

  function drawDots(state, found, shares) {
    const { scene, anchor } = state, count = scene.points.length, paco = state.options.loss === "paco";
    const classes = scene.showClasses || paco || state.options.loss === "supcon";
    const all = [...scene.points, ...(paco ? scene.centers : [])];
    all.forEach((point, k) => {
      const center = k >= count, { group, mark, label } = dotNode(k), at = projected(state, point), back = at.depth < -0.02;
      const role = center ? "center" : k === anchor ? "anchor" : found.positives.includes(k) ? "positive" : "negative";
      const group_class = center ? k - count : scene.labels[k], share = clamp(shares[k] || 0, 0, 1);
      const marked = state.highlight === k ? " marked" : "", strength = role === "negative" ? ` s${Math.round(Math.sqrt(share) * 8)}` : "";
      put(group, {
        class: `dot ${role}${strength}${back ? " back" : ""}${marked}${classes ? ` class${group_class}` : ""}`, visibility: "visible",
        transform: `translate(${at.x.toFixed(2)} ${at.y.toFixed(2)}) scale(${(center ? 1.25 : 1) * (state.sphere ? 0.86 + 0.14 * at.depth : 1)})`,
        "aria-pressed": k === anchor, "data-index": k,
        "aria-label": center ? `center of class ${"ABC"[k - count]}` : `${nameOf(k, count)}, ${role}`
          + (role === "anchor" ? "" : `, cosine ${digits(found.cosines[k])}`) + (role === "negative" ? `, ${percent(shares[k] || 0)} of the push` : ""),
      });
      mark.setAttribute("d", SHAPES[classes ? group_class : 0]);
      label.textContent = center ? "ABC"[k - count] : nameOf(k, count);
    });
    const own = kept[anchor].group;  // the anchor once more, above its neighbors
    put(crown, { class: `${own.getAttribute("class")} crown`, transform: own.getAttribute("transform") });
    crown.replaceChildren(...[...own.children].slice(1).map((child) => child.cloneNode(true)));
    for (let k = all.length; k < kept.length; k++) { kept[k].group.setAttribute("visibility", "hidden"); kept[k].group.setAttribute("tabindex", "-1"); }
    for (let k = 0; k < all.length; k++) kept[k].group.setAttribute("tabindex", "0");
  }

  function drawArrows(state, found) {
    const forces = forcesOf(state, found), longest = Math.max(1e-9, ...forces.map((force) => norm(force.step)));
    const by = ARROW_REACH * (state.magnify ? clamp(0.75 / (longest * ARROW_REACH), 1, 1000) : 1);
    state.magnified = by / ARROW_REACH;
    shafts.begin();
    tips.begin();
    for (const force of forces) {
      const made = arrowPath(state, force, by);
      if (!made) continue;
      const own = force.from && !force.from.center && force.from.index === state.highlight;
      const faded = (state.highlight !== null && force.from && !own ? 0.25 : 1) * (made.depth < -0.02 ? 0.3 : 1);
      shafts.add(made.shaft, `${force.kind}${own ? " own" : ""}`, faded);
      tips.add(made.tip, force.kind, faded);
    }
    shafts.end();
    tips.end();
  }

  return {
    kept,
    draw(state, found, shares) {
      put(ball, { r: radiusOf(state), class: state.sphere ? "ball" : "ring" });
      drawGlobe(state);
      links.begin();
      const half = state.scene.points.length / 2;
      for (let i = 0; i < half; i++) {
        const own = i === state.anchor % half, trace = greatCircle(state.scene.points[i], state.scene.points[i + half]);
        split(trace.map((point) => projected(state, point)), links, own ? "own" : "");
      }
      links.end();
      drawDots(state, found, shares);
      drawArrows(state, found);
    },
  };
}
