"use strict";
// What is said about a state: shares of the push, effective number, both limits of the temperature, alignment, uniformity.

// Each negative's share of the push, in the order of found.negatives. A share may be negative: HCL pulls far ones.
function sharesOf(found) {
  const size = total(found.negatives.map((j) => Math.abs(found.weights[j])));
  return found.negatives.map((j) => size > 0 ? found.weights[j] / size : 0);
}

// exp(entropy of the shares): 1 where one negative has all, their number where all are alike, 0 without a push.
function effectiveNumber(found) {
  const shares = sharesOf(found).map(Math.abs).filter((share) => share > 0);
  return shares.length ? Math.exp(-total(shares.map((share) => share * Math.log(share)))) : 0;
}

// All that pushes and all that pulls, in logits; equal, unless a bound takes the negatives away or λ unbalances them.
function balanceOf(found) {
  const all = [...found.weights, ...found.centerWeights];
  return { push: total(all.filter((w) => w > 0)), pull: -total(all.filter((w) => w < 0)) };
}

// τ → 0: τL → cold. τ → ∞: L → hot.level − hot.slope/τ, up to terms of 1/τ². Both in closed form; null for the simple loss.
function limitsOf(scene, anchor, options) {
  const found = anchorLoss(scene, anchor, options), c = found.cosines, { loss } = options;
  if (loss === "simple") return null;
  const pick = (chosen) => chosen.map((j) => c[j]), mean = (values) => total(values) / values.length;
  const negative = pick(found.negatives), positive = pick(found.positives), all = [...positive, ...negative];
  if (loss === "supcon") {
    return { cold: Math.max(...all) - mean(positive), hot: { level: Math.log(all.length), slope: mean(positive) - mean(all) } };
  }
  if (loss === "paco") {
    const { alpha, centerWeight, gamma, centerTemperature, counts } = options, weight = centerWeight + alpha * positive.length;
    const prior = logFrequencies(counts, scene.centers.length);
    const centers = found.centerCosines.map((x, k) => (x + prior[k]) / centerTemperature);
    const sum = total(centers.map(Math.exp)) + gamma * all.length;
    return {
      cold: (gamma > 0 ? Math.max(0, ...all) : 0) - alpha * total(positive) / weight,
      hot: {
        level: Math.log(sum) - centerWeight * centers[scene.labels[anchor]] / weight,
        slope: alpha * total(positive) / weight - gamma * total(all) / sum,
      },
    };
  }
  const least = [...negative].sort((a, b) => b - a)[Math.min(options.topK, negative.length) - 1];
  const counted = loss === "hard" ? negative.filter((x) => x >= least - 1e-9) : negative;
  const apart = c[found.partner] - mean(counted), count = counted.length;
  const left = loss === "debiased" || loss === "hcl" ? 1 - options.tauPlus : 1;
  return {
    cold: Math.max(0, Math.max(...counted) - c[found.partner]),
    hot: { level: Math.log(1 + count), slope: count / (1 + count) * apart / left },
  };
}

// Mean squared distance of the two views of an image: 0 where they lie together.
function alignmentOf(points) {
  const half = points.length / 2;
  return total(points.slice(0, half).map((x, i) => 2 - 2 * dot(x, points[i + half]))) / half;
}

// log mean e^{−2‖x−y‖²} over pairs of images, the mean of both views: the lower, the more evenly spread.
function uniformityOf(points) {
  const half = points.length / 2;
  const view = (rows) => logSumExp(rows.flatMap((x, i) => rows.filter((_, j) => j !== i).map((y) => 4 * dot(x, y) - 4)))
    - Math.log(half * (half - 1));
  return (view(points.slice(0, half)) + view(points.slice(half))) / 2;
}

// All that pushes and all that pulls the anchor, each list sorted: {pushes, pulls} of {center, index, weight, share, cosine}.
// Negatives are always among the pushes, even where the loss gives one a weight of 0 or pulls it.
function tallyOf(found) {
  const pushes = [], pulls = [], negative = new Set(found.negatives), positive = new Set(found.positives);
  const sort = (entry, own) => (entry.weight > 0 || own === false ? pushes : pulls).push(entry);
  found.weights.forEach((weight, index) => {
    if (negative.has(index) || positive.has(index)) sort({ center: false, index, weight, cosine: found.cosines[index] }, !negative.has(index));
  });
  found.centerWeights.forEach((weight, index) => sort({ center: true, index, weight, cosine: found.centerCosines[index] }, null));
  for (const list of [pushes, pulls]) {
    const size = total(list.map((entry) => Math.abs(entry.weight)));
    for (const entry of list) entry.share = size > 0 ? (list === pulls ? -1 : 1) * entry.weight / size : 0;
    list.sort((a, b) => b.share - a.share || b.cosine - a.cosine || a.index - b.index);
  }
  return { pushes, pulls };
}
