"use strict";
// Names, formulas and the sentences about what one sees.

const digits = (x, places = 2) => {
  if (!Number.isFinite(x)) return "–";
  const shown = Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= 10 ? x.toFixed(1) : x.toFixed(places);
  return (Number(shown) === 0 ? shown.replace("-", "") : shown).replace("-", "−");
};
const percent = (x) => (Math.abs(x) < 0.0995 && Math.abs(x) >= 0.0005 ? (100 * x).toFixed(1) : (100 * x).toFixed(0)).replace("-", "−") + "%";
const tauText = (tau) => tau < 0.1 ? tau.toFixed(3).replace(/0$/, "") : tau < 1 ? tau.toFixed(2) : tau.toFixed(tau < 10 ? 1 : 0);

// Image and view: 3 is the first view of the third image, 3′ the second.
const nameOf = (j, count) => j < count / 2 ? `${j + 1}` : `${j - count / 2 + 1}′`;

const LOSS_TEXT = {
  infonce: ["InfoNCE", "L = log(e^s⁺ + Σₖ e^sₖ) − s⁺,  s = cos/τ", "Pick the positive among the negatives. A negative’s push is its part of the softmax: τ decides how far it reaches."],
  simple: ["Simple", "L = −cos⁺ + λ Σₖ cosₖ", "No temperature: near or far, every negative is pushed by the same λ. This is where InfoNCE ends as τ → ∞."],
  hard: ["Hard", "L = log(e^s⁺ + Σ_top k e^sₖ) − s⁺,  s = cos/τ", "InfoNCE with the k nearest negatives alone: the choice by rank does what a low temperature does."],
  debiased: ["Debiased", "L = log(e^s⁺ + N) − s⁺,  N = (Σₖ e^sₖ − τ⁺M e^s⁺)/(1−τ⁺) ≥ M e^(−1/τ)", "A share τ⁺ of the negatives is taken to be of the anchor’s own class, and is subtracted."],
  hcl: ["Hard-negative", "as debiased, with Σₖ e^sₖ replaced by M Σₖ e^((1+β)sₖ) / Σₖ e^(βsₖ)", "β prefers near negatives on top of the temperature. Far ones may even be pulled."],
  supcon: ["SupCon", "L = LSE of all s − mean of s over the class,  s = cos/τ", "Everything of the anchor’s class (same shape) is a positive and pulls evenly; all share one softmax that pushes."],
  paco: ["PaCo", "L = −(β log p_center + α Σ log p_same)/(β + αK)", "Each class also has a learnable center (dashed) that pulls with weight β: a rare class has a partner even when alone."],
};

const OPTION_TEXT = {
  weight: ["λ", "push of each negative"], topK: ["k", "negatives that count"],
  tauPlus: ["τ⁺", "share taken to be of the anchor’s class"], beta: ["β", "preference for near negatives"],
  alpha: ["α", "weight of a sample of the class"], centerTemperature: ["τ of centers", "the lower, the stronger they act"],
};

// What one sees now, in one to three sentences.
function sentences(scene, found, options) {
  const count = scene.points.length, shares = sharesOf(found), number = found.negatives.length, said = [];
  const order = shares.map((_, k) => k).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]));
  const first = found.negatives[order[0]], name = first === undefined ? "" : nameOf(first, count), top = shares[order[0]] || 0;
  const effective = effectiveNumber(found), { push, pull } = balanceOf(found), { loss } = options;
  const classless = loss !== "supcon" && loss !== "paco", theirs = classless ? "the push" : "the negatives’ push";
  if (number === 0) return ["Every other point is of the anchor’s class: there is nothing to push away."];
  if (loss === "simple") said.push(`Every one of the ${number} negatives is pushed by λ = ${digits(options.weight)}, whether it is near or far.`);
  else if (found.bounded) said.push("The estimate has fallen to its lower bound: negatives get no gradient at all, only the positive pulls. A higher τ or a lower τ⁺ ends this.");
  else if (pull < 0.02) said.push("Almost nothing pulls or pushes: the positive is so much nearer than any negative that, at this τ, the anchor has nothing to learn.");
  else if (top > 0.8) said.push(`A low temperature for these points: ${name}, the nearest negative, takes ${percent(top)} of ${theirs}. The others hardly count, as in a triplet loss.`);
  else if (effective > 0.85 * number && loss !== "hard") said.push(`A high temperature: all ${number} negatives are pushed almost alike, near or far, as by the simple loss.`);
  else said.push(`Between the extremes: ${name} takes ${percent(top)} of ${theirs}, and about ${digits(effective, 1)} of ${number} negatives count.`);
  if (shares.some((share) => share < -0.001)) said.push("Some far negatives are pulled: their bars point to the left.");
  if (classless && top > 0.2 && scene.labels[first] === scene.labels[scene.anchor] && scene.showClasses) {
    said.push(`But ${name} is of the anchor’s own class (same shape): a false negative. The lower τ, the more the loss rests on it. Compare SupCon.`);
  }
  if (loss === "hard") said.push(`Only the ${Math.min(options.topK, number)} nearest are pushed; the others get nothing.`);
  if (!classless && found.positives.some((j) => found.weights[j] > 0.005)) said.push("A positive nearer than its fair share is pushed: the class may not fall into one point while others are near.");
  if (loss === "simple" && Math.abs(push - pull) > 0.01) said.push("Push and pull do not balance: λ is not 1 / number of negatives.");
  return said;
}
