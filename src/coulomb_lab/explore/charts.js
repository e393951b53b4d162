"use strict";
// Four small charts, drawn as wide as their place is.

const TAUS = Array.from({ length: 121 }, (_, k) => 10 ** (-2 + 3 * k / 120));
const HEIGHT = 210, EDGE = { left: 40, right: 14, top: 12, bottom: 34 };

function frame(host, x, y, { xTicks, yTicks, xName, xText = String, yText = String }) {
  const width = Math.max(220, widthOf(host)), w = width - EDGE.left - EDGE.right, h = HEIGHT - EDGE.top - EDGE.bottom;
  const at = { x: (v) => EDGE.left + w * (v - x[0]) / (x[1] - x[0]), y: (v) => EDGE.top + h * (1 - (v - y[0]) / (y[1] - y[0])) };
  const grid = yTicks.map((v) => `<path class="grid" d="M${EDGE.left} ${at.y(v).toFixed(1)}h${w}"/><text class="tick" x="${EDGE.left - 7}" y="${(at.y(v) + 4).toFixed(1)}" text-anchor="end">${yText(v)}</text>`);
  const below = xTicks.map((v) => `<text class="tick" x="${at.x(v).toFixed(1)}" y="${HEIGHT - EDGE.bottom + 15}" text-anchor="middle">${xText(v)}</text>`);
  const name = `<text class="tick" x="${EDGE.left + w / 2}" y="${HEIGHT - 3}" text-anchor="middle">${xName}</text>`;
  const clip = `<clipPath id="${host.id}-clip"><rect x="${EDGE.left}" y="${EDGE.top - 2}" width="${w}" height="${h + 4}"/></clipPath>`;
  return {
    at, width, height: h,
    show(inside, above = "") {
      host.innerHTML = `<svg viewBox="0 0 ${width} ${HEIGHT}" width="${width}" height="${HEIGHT}" role="img" aria-label="${host.dataset.label || ""}"><defs>${clip}</defs>${grid.join("")}${below.join("")}${name}<g clip-path="url(#${host.id}-clip)">${inside}</g>${above}</svg>`;
    },
  };
}

const lineOf = (at, xs, ys) => `M${xs.map((x, k) => `${at.x(x).toFixed(1)} ${at.y(clamp(ys[k], -1e4, 1e4)).toFixed(1)}`).join("L")}`;
const LOG_TICKS = { xTicks: [-2, -1, 0, 1], xName: "τ", xText: (v) => String(10 ** v) };

function niceTicks(low, high, count = 4) {
  const raw = (high - low) / count, size = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((k) => k * size).find((s) => s >= raw);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(6)));
}

// The loss and shares at every τ; they do not depend on the τ chosen.
const sweep = (state) => TAUS.map((temperature) => anchorLoss(state.scene, state.anchor, { ...state.options, temperature }));

function marker(chart, tau, y) {
  const x = chart.at.x(Math.log10(tau)).toFixed(1), dot = y === null ? "" : `<circle class="now" cx="${x}" cy="${chart.at.y(y).toFixed(1)}" r="5"/>`;
  return `<path class="marker" d="M${x} ${EDGE.top}V${HEIGHT - EDGE.bottom}"/>${dot}`;
}

function lossChart(host, state, found, swept, limits) {
  const values = swept.map((one) => one.value), logs = TAUS.map(Math.log10);
  const ends = [values[120], limits ? limits.hot.level : values[0]], spread = Math.max(0.5, ...ends.map(Math.abs));
  const high = state.options.loss === "simple" ? Math.max(0.2, values[0] + 0.5) : spread * 1.75;
  const low = Math.min(0, Math.min(...values)) * 1.2, chart = frame(host, [-2, 1], [low, high], { ...LOG_TICKS, yTicks: niceTicks(low, high), yText: (v) => digits(v, v % 1 ? 1 : 0) });
  let inside = "";
  if (limits) {
    inside += `<path class="limit cold" d="${lineOf(chart.at, logs, TAUS.map((tau) => limits.cold / tau))}"/>`;
    inside += `<path class="limit hot" d="${lineOf(chart.at, logs, TAUS.map((tau) => limits.hot.level - limits.hot.slope / tau))}"/>`;
  }
  inside += `<path class="curve" d="${lineOf(chart.at, logs, values)}"/>`;
  const inRange = found.value <= high && found.value >= low;
  chart.show(inside, marker(chart, state.options.temperature, inRange ? found.value : null));
}

function shareChart(host, state, swept) {
  const order = swept[0].negatives.map((j, k) => [swept[0].cosines[j], k, j]).sort((a, b) => b[0] - a[0]);
  const chart = frame(host, [-2, 1], [0, 1], { ...LOG_TICKS, yTicks: [0, 0.5, 1], yText: (v) => `${100 * v}%` });
  const logs = TAUS.map(Math.log10), shares = swept.map((one) => {
    const positive = sharesOf(one).map((share) => Math.max(0, share)), size = total(positive);
    return positive.map((share) => size > 0 ? share / size : NaN);
  });
  let floor = TAUS.map(() => 0), inside = "";
  order.forEach(([, k, j], rank) => {
    const top = floor.map((y, t) => y + shares[t][k]), known = top.map((y, t) => t).filter((t) => Number.isFinite(top[t]));
    if (known.length > 1) {
      const way = [...known.map((t) => [logs[t], top[t]]), ...known.slice().reverse().map((t) => [logs[t], floor[t]])];
      const d = way.map(([x, y]) => `${chart.at.x(x).toFixed(1)} ${chart.at.y(y).toFixed(1)}`).join("L");
      inside += `<path class="band b${Math.min(9, Math.round(rank * 9 / Math.max(1, order.length - 1)))}${state.highlight === j ? " marked" : ""}" d="M${d}Z"/>`;
    }
    floor = top;
  });
  chart.show(inside, marker(chart, state.options.temperature, null) + bandNames(chart, state, order, shares));
}

// The names of bands that are tall enough, at the place of τ.
function bandNames(chart, state, order, shares) {
  const t = clamp(Math.round((Math.log10(state.options.temperature) + 2) * 40), 0, 120), count = state.scene.points.length;
  const x = chart.at.x(Math.log10(state.options.temperature)), side = x > chart.width * 0.75 ? -1 : 1;
  let floor = 0, text = "";
  order.forEach(([, k, j], rank) => {
    const share = shares[t][k];
    if (share * chart.height > 13) text += `<text class="bandname${Math.round(rank * 9 / Math.max(1, order.length - 1)) < 3 ? " deep" : ""}" x="${(x + 6 * side).toFixed(1)}" y="${(chart.at.y(floor + share / 2) + 4).toFixed(1)}" text-anchor="${side > 0 ? "start" : "end"}">${nameOf(j, count)}</text>`;
    if (Number.isFinite(share)) floor += share;
  });
  return text;
}

// How much a negative is pushed at each angle, relative to the nearest; beside it a charge, 1/r².
function reachChart(host, state, found) {
  const angle = (c) => Math.acos(clamp(c, -1, 1)), shares = sharesOf(found), cosines = found.negatives.map((j) => found.cosines[j]);
  const nearest = Math.max(-1, ...cosines), most = Math.max(1e-12, ...shares.map(Math.abs)), from = Math.max(0.06, angle(nearest));
  const angles = Array.from({ length: 91 }, (_, k) => k / 90 * Math.PI), beta = state.options.loss === "hcl" ? state.options.beta : 0;
  const chart = frame(host, [0, 180], [Math.min(0, ...shares.map((s) => s / most)) * 1.15, 1.12], { xTicks: [0, 45, 90, 135, 180], yTicks: [0, 0.5, 1], xName: "angle to the anchor", xText: (v) => `${v}°` });
  const degrees = (a) => a * 180 / Math.PI, s = cosines.map((c) => c * found.scale);
  const lift = beta ? logSumExp(s.map((x) => (1 + beta) * x)) - logSumExp(s.map((x) => beta * x)) : 0;
  const raw = (c) => state.options.loss === "simple" ? 1 : beta
    ? (1 + beta) * Math.exp((1 + beta) * (c - nearest) * found.scale) - beta * Math.exp(beta * (c - nearest) * found.scale + lift - nearest * found.scale)
    : Math.exp((c - nearest) * found.scale);
  const full = Math.abs(raw(nearest)) || 1, beyond = angles.filter((a) => a >= from - 1e-9);
  const counted = state.options.loss === "hard" ? Math.max(...found.negatives.map((j) => found.weights[j] > 0 ? angle(found.cosines[j]) : 0)) + 0.01 : 7;
  const law = [from, ...beyond].map((a) => a > counted ? 0 : raw(Math.cos(a)) / full);
  const charge = [from, ...beyond].map((a) => (Math.sin(from / 2) / Math.sin(Math.max(a, from) / 2)) ** 2);
  let inside = `<path class="limit cold" d="${lineOf(chart.at, [from, ...beyond].map(degrees), charge)}"/>`;
  inside += found.bounded ? "" : `<path class="curve push" d="${lineOf(chart.at, [from, ...beyond].map(degrees), law)}"/>`;
  found.negatives.forEach((j, k) => {
    inside += `<circle class="spot${state.highlight === j ? " marked" : ""}" cx="${chart.at.x(degrees(angle(found.cosines[j]))).toFixed(1)}" cy="${chart.at.y(shares[k] / most).toFixed(1)}" r="4.5"/>`;
  });
  chart.show(inside);
}

function planeChart(host, state) {
  const trail = [...state.trail, { u: uniformityOf(state.scene.points), a: alignmentOf(state.scene.points) }];
  const low = Math.min(-4.5, ...trail.map((p) => p.u)), high = Math.max(0.5, ...trail.map((p) => p.a)) * 1.12;
  const chart = frame(host, [low, 0], [0, high], { xTicks: niceTicks(low, 0), yTicks: niceTicks(0, high, 3), xName: "uniformity", xText: (v) => digits(v, 0), yText: (v) => digits(v, 1) });
  const d = trail.length > 1 ? `<path class="curve" d="${lineOf(chart.at, trail.map((p) => p.u), trail.map((p) => p.a))}"/>` : "";
  const [start, now] = [trail[0], trail[trail.length - 1]];
  const spot = (p, name, r) => `<circle class="${name}" cx="${chart.at.x(p.u).toFixed(1)}" cy="${chart.at.y(p.a).toFixed(1)}" r="${r}"/>`;
  chart.show(d, (trail.length > 1 ? spot(start, "start", 4) : "") + spot(now, "now", 6));
}
