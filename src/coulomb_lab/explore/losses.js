"use strict";
// The losses of coulomb.losses for one anchor, with gradients by hand, in double precision. No page in here.
//
// A scene: {points: 2N unit vectors, the two views of image i at i and N+i; labels: 2N classes; centers: C unit vectors}.
// options: {loss, temperature, weight, topK, tauPlus, beta, alpha, centerWeight, gamma, centerTemperature, counts}.

const LOSSES = ["infonce", "simple", "hard", "debiased", "hcl", "supcon", "paco"];

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const partnerOf = (i, count) => (i + count / 2) % count;
const total = (values) => values.reduce((sum, value) => sum + value, 0);

function logSumExp(values) {
  const top = Math.max(...values);
  return Number.isFinite(top) ? top + Math.log(total(values.map((value) => Math.exp(value - top)))) : top;
}

function softmax(values) {
  const lse = logSumExp(values);
  return values.map((value) => Math.exp(value - lse));
}

const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const sigmoid = (x) => x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x));

// Which points the loss pushes, and which it pulls. Without classes only the image's other view is a positive.
function rolesOf(scene, anchor, loss) {
  const count = scene.points.length, partner = partnerOf(anchor, count), classes = loss === "supcon" || loss === "paco";
  const positives = [], negatives = [];
  for (let j = 0; j < count; j++) {
    if (j === anchor) continue;
    const alike = j === partner || (classes && scene.labels[j] === scene.labels[anchor]);
    (alike ? positives : negatives).push(j);
  }
  return { partner, positives, negatives };
}

// L = softplus(excess): `share` is how each negative's logit moves the excess, `least` that the negatives do not.
function againstPositive(excess, own, negatives, share) {
  const rise = sigmoid(excess), weights = {};
  negatives.forEach((j, k) => { weights[j] = rise * share[k]; });
  weights[own] = -rise;
  return { value: softplus(excess), weights };
}

function debiasedExcess(excess, logCount, tauPlus, least) {
  if (tauPlus === 0) return { value: excess, slope: 1, bounded: false };
  const taken = Math.log(tauPlus) + logCount - excess;  // log of the share of the sum that is taken out
  const left = taken < 0 ? excess + Math.log(-Math.expm1(taken)) - Math.log1p(-tauPlus) : -Infinity;
  if (!(left > least)) return { value: least, slope: 0, bounded: true };
  return { value: left, slope: 1 / -Math.expm1(taken), bounded: false };
}

const FORMULAS = {
  infonce(s, { partner, negatives }) {
    const logits = negatives.map((j) => s[j]);
    return againstPositive(logSumExp(logits) - s[partner], partner, negatives, softmax(logits));
  },

  simple(s, { partner, negatives }, options) {
    const weights = { [partner]: -1 };
    for (const j of negatives) weights[j] = options.weight;
    return { value: options.weight * total(negatives.map((j) => s[j])) - s[partner], weights };
  },

  hard(s, { partner, negatives }, options) {
    const least = negatives.map((j) => s[j]).sort((a, b) => b - a)[Math.min(options.topK, negatives.length) - 1];
    const logits = negatives.map((j) => s[j] >= least - 1e-9 ? s[j] : -Infinity);  // equal to the last: counts too
    return againstPositive(logSumExp(logits) - s[partner], partner, negatives, softmax(logits));
  },

  debiased(s, roles, options) { return FORMULAS.hcl(s, roles, { ...options, beta: 0 }); },

  hcl(s, { partner, negatives }, options) {
    const { beta, tauPlus, temperature } = options, logCount = Math.log(negatives.length);
    const near = negatives.map((j) => (1 + beta) * s[j]), drawn = negatives.map((j) => beta * s[j]);
    const [p, q] = [softmax(near), softmax(drawn)];
    const excess = logCount + logSumExp(near) - logSumExp(drawn) - s[partner];
    const kept = debiasedExcess(excess, logCount, tauPlus, logCount - 1 / temperature - s[partner]);
    const found = againstPositive(kept.value, partner, negatives, p.map((x, k) => kept.slope * ((1 + beta) * x - beta * q[k])));
    if (!kept.bounded) found.weights[partner] *= kept.slope;
    return { ...found, bounded: kept.bounded };
  },

  supcon(s, { positives, negatives }) {
    const others = [...positives, ...negatives], p = softmax(others.map((j) => s[j])), weights = {};
    others.forEach((j, k) => { weights[j] = p[k]; });
    for (const j of positives) weights[j] -= 1 / positives.length;
    return { value: logSumExp(others.map((j) => s[j])) - total(positives.map((j) => s[j])) / positives.length, weights };
  },

  paco(s, { positives, negatives }, options, centers, own) {
    const { alpha, centerWeight, gamma } = options, others = [...positives, ...negatives];
    const all = centerWeight + alpha * positives.length;
    const lse = logSumExp([...centers, ...(gamma > 0 ? others.map((j) => s[j] + Math.log(gamma)) : [])]);
    const weights = {}, centerWeights = centers.map((c, k) => Math.exp(c - lse) - (k === own ? centerWeight / all : 0));
    for (const j of others) weights[j] = gamma * Math.exp(s[j] - lse);
    for (const j of positives) weights[j] -= alpha / all;
    const pulled = centerWeight * centers[own] + alpha * total(positives.map((j) => s[j]));
    return { value: lse - pulled / all, weights, centerWeights };
  },
};

// log π of the classes, or zeros.
function logFrequencies(counts, classes) {
  return Array.from({ length: classes }, (_, c) => counts ? Math.log(counts[c] / total(counts.slice(0, classes))) : 0);
}

// The loss of one anchor: {value, cosines, weights, centerCosines, centerWeights, scale, centerScale, bounded, …roles}.
// weights are ∂L/∂s, the share of the softmax that pushes (> 0) or pulls (< 0); ∂L/∂cos = scale·weights.
function anchorLoss(scene, anchor, options) {
  const roles = rolesOf(scene, anchor, options.loss), z = scene.points[anchor];
  const cosines = scene.points.map((point) => dot(z, point));
  const scale = options.loss === "simple" ? 1 : 1 / options.temperature;
  const s = cosines.map((cosine) => cosine * scale);
  const paco = options.loss === "paco", centerScale = 1 / options.centerTemperature;
  const centerCosines = paco ? scene.centers.map((center) => dot(z, center)) : [];
  const prior = logFrequencies(options.counts, centerCosines.length);
  const centers = centerCosines.map((cosine, c) => (cosine + prior[c]) * centerScale);
  const found = FORMULAS[options.loss](s, roles, options, centers, scene.labels[anchor]);
  return {
    bounded: false, ...roles, cosines, centerCosines, scale, centerScale, value: found.value,
    weights: scene.points.map((_, j) => found.weights[j] || 0), centerWeights: found.centerWeights || [],
    ...(found.bounded ? { bounded: true } : {}),
  };
}

// The batch: the mean over all anchors, and its gradient on the sphere: {value, points, centers}.
function batchLoss(scene, options, only = null) {
  const anchors = only === null ? scene.points.map((_, i) => i) : [only];
  const points = scene.points.map(() => [0, 0, 0]), centers = scene.centers.map(() => [0, 0, 0]);
  const add = (to, by, vector) => { for (let d = 0; d < 3; d++) to[d] += by * vector[d]; };
  let value = 0;
  for (const i of anchors) {
    const found = anchorLoss(scene, i, options), z = scene.points[i];
    value += found.value / anchors.length;
    found.weights.forEach((weight, j) => {
      const slope = weight * found.scale / anchors.length;
      add(points[i], slope, scene.points[j]);
      add(points[j], slope, z);
    });
    found.centerWeights.forEach((weight, c) => {
      const slope = weight * found.centerScale / anchors.length;
      add(points[i], slope, scene.centers[c]);
      add(centers[c], slope, z);
    });
  }
  points.forEach((gradient, i) => add(gradient, -dot(gradient, scene.points[i]), scene.points[i]));
  centers.forEach((gradient, c) => add(gradient, -dot(gradient, scene.centers[c]), scene.centers[c]));
  return { value, points, centers };
}
