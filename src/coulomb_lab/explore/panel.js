"use strict";
// The figures beside the picture: loss, balance, bars, limits, sentences.

const ROW = 25;

function makeBars(host, focusOn, mark) {
  const rows = new Map();
  function rowOf(key) {
    if (rows.has(key)) return rows.get(key);
    const row = htmlNode("li", "row", undefined, host), button = htmlNode("button", "", undefined, row);
    button.type = "button";
    const made = { row, button, name: htmlNode("b", "", "", button), lane: htmlNode("span", "lane", undefined, button), share: htmlNode("span", "share", "", button), cosine: htmlNode("span", "cosine", "", button) };
    made.fill = htmlNode("i", "", undefined, made.lane);
    button.addEventListener("click", () => focusOn(made.index));
    for (const [name, to] of [["pointerenter", true], ["focus", true], ["pointerleave", false], ["blur", false]]) {
      button.addEventListener(name, () => mark(to ? made.index : null));
    }
    rows.set(key, made);
    return made;
  }
  return (state, { pushes, pulls }) => {
    const count = state.scene.points.length, shown = new Set();
    const several = pulls.length > 1, list = [...pushes.map((e) => [e, "push"]), ...(several ? pulls.map((e) => [e, "pull"]) : [])];
    list.forEach(([entry, kind], rank) => {
      const key = `${entry.center ? "center" : "point"}${entry.index}`, made = rowOf(key);
      shown.add(key);
      made.index = entry.center ? count + entry.index : entry.index;
      made.name.textContent = entry.center ? "ABC"[entry.index] : nameOf(entry.index, count);
      made.row.className = `row ${kind}${entry.share < 0 ? " pulled" : ""}${state.highlight === made.index ? " marked" : ""}${entry.center ? " center" : ""}`;
      made.row.style.transform = `translateY(${(rank + (kind === "pull" ? 0.45 : 0)) * ROW}px)`;
      made.fill.style.width = `${100 * clamp(Math.abs(entry.share), 0, 1)}%`;
      made.share.textContent = percent(entry.share);
      made.cosine.textContent = digits(entry.cosine);
      made.button.setAttribute("aria-label", `${made.name.textContent}: ${percent(entry.share)} of the ${kind}, cosine ${digits(entry.cosine)}; go to the point`);
    });
    for (const [key, made] of rows) made.row.hidden = !shown.has(key);
    host.style.height = `${(list.length + (several ? 0.45 : 0)) * ROW}px`;
  };
}

function drawBalance(host, found, loss) {
  if (!host.firstChild) {
    for (const kind of ["push", "pull"]) {
      const line = htmlNode("p", kind, undefined, host);
      htmlNode("span", "", kind === "push" ? "push" : "pull", line);
      htmlNode("i", "", undefined, htmlNode("span", "lane", undefined, line));
      htmlNode("b", "", "", line);
    }
  }
  const balance = balanceOf(found), size = Math.max(1, balance.push, balance.pull);
  for (const kind of ["push", "pull"]) {
    host.querySelector(`.${kind} i`).style.width = `${100 * balance[kind] / size}%`;
    host.querySelector(`.${kind} b`).textContent = digits(balance[kind]);
  }
}

function tellLimits(state, found, limits) {
  const { options } = state, tau = options.temperature, count = state.scene.points.length;
  const balance = balanceOf(found), even = Math.abs(balance.push - balance.pull) < 5e-4;
  byId("identity").textContent = found.bounded
    ? "Not now: at its lower bound the estimate of the negatives is a constant, so they get no push, and only the positive pulls."
    : even ? `What pushes adds up to ${digits(balance.push, 3)}, what pulls to ${digits(balance.pull, 3)}. The two are equal at every τ: the softmax shares out exactly what the positive lacks, ${options.loss === "supcon" || options.loss === "paco" ? "Σ P − Σ targets = 0" : "1 − P⁺"}. The temperature decides who gets it.`
    : `Push ${digits(balance.push)}, pull ${digits(balance.pull)}: the simple loss balances at λ = 1/${count - 2} = ${digits(1 / (count - 2), 3)} alone; no softmax sees to it.`;
  if (!limits) {
    byId("cold").textContent = "The simple loss has no temperature; it never looks for the hardest negative.";
    byId("hot").textContent = "This is it: −cos⁺ + λ Σ cos. Every negative counts the same.";
    return;
  }
  const classes = options.loss === "supcon" || options.loss === "paco";
  const about = { supcon: "nearest of all − mean positive", paco: "nearest of all − weighted positives" }[options.loss] || "hardest negative − positive, if above 0";
  byId("cold").innerHTML = `τ·L → <b>${digits(limits.cold, 3)}</b>: in cosines, ${about}. ${classes ? "" : "That is a triplet loss without margin. "}Now τ·L = <b>${digits(tau * found.value, 3)}</b>.`;
  const apart = limits.hot.slope;
  byId("hot").innerHTML = `L → ${digits(limits.hot.level, 3)} − <b>${digits(apart, 3)}</b>/τ: mean similarities alone, as in the simple loss. Now τ·(${digits(limits.hot.level, 3)} − L) = <b>${digits(tau * (limits.hot.level - found.value), 3)}</b>.`;
}

function drawLegend(host, state) {
  const { loss } = state.options, classes = loss === "supcon" || loss === "paco";
  const words = [["anchor", "anchor"], ["positive", classes ? "positives: its class" : "positive: its other view"], ["negative", "negatives, deeper = more push"]];
  if (loss === "paco") words.push(["center", "centers"]);
  host.replaceChildren(...words.map(([name, text]) => {
    const span = htmlNode("span");
    htmlNode("i", name, undefined, span);
    span.append(text);
    return span;
  }));
  const arrows = {
    each: "arrows: the force on each point; on the anchor, their sum", anchor: "arrows: each force on the anchor; black, their sum",
    all: "arrows: where points go when all are anchors",
  }[state.arrows].replace("black", matchMedia("(prefers-color-scheme: dark)").matches ? "white" : "black");
  if (state.landscape) htmlNode("span", "ramp", state.sphere ? "loss if the anchor stood there" : "ring: loss if the anchor stood there", host);
  htmlNode("span", "arrowtext", arrows + (state.magnified > 1.01 ? ` · ×${digits(state.magnified, 1)}` : ""), host);
}
