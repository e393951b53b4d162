"use strict";
/** A new element with a class and a text. */
const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

/** Tooltips of charts: for the nearest point under the pointer, or by the arrow keys (up and down: another curve). */
const charts = (readouts) => {
  for (const plot of document.querySelectorAll(".plot[data-chart]")) {
    const curves = readouts[Number(plot.dataset.chart)], near = plot.classList.contains("path") || curves.length > 1;
    const cursor = make("i", "cursor"), readout = make("span", "readout");
    cursor.hidden = readout.hidden = true;
    readout.setAttribute("role", "status");
    plot.append(cursor, readout);
    let which = 0, at = -1;
    const show = (curve, index) => {
      which = curve;
      const { x, y, text } = curves[curve];
      at = Math.max(0, Math.min(x.length - 1, index));
      cursor.hidden = readout.hidden = false;
      cursor.style.left = x[at] + "%";
      cursor.style.top = readout.style.top = y[at] + "%";
      readout.textContent = text[at];
      const half = readout.offsetWidth / 2, center = x[at] / 100 * plot.clientWidth;
      readout.style.left = Math.max(half - 44, Math.min(plot.clientWidth - half + 10, center)) + "px";
    };
    const hide = () => { cursor.hidden = readout.hidden = true; };
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const u = (event.clientX - box.left) / box.width * 100, v = (event.clientY - box.top) / box.height * 100;
      let best = [0, 0], least = Infinity;
      curves.forEach(({ x, y }, curve) => x.forEach((place, i) => {
        const far = near ? Math.hypot((place - u) * box.width, (y[i] - v) * box.height) : Math.abs(place - u);
        if (far < least) { least = far; best = [curve, i]; }
      }));
      show(...best);
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const other = { ArrowUp: -1, ArrowDown: 1 }[event.key], last = curves[which].x.length;
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -last, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (!step && !(other && curves.length > 1)) return;
      event.preventDefault();
      if (step) show(which, at < 0 ? (step === 1 || step === -last ? 0 : last - 1) : at + step);
      else show((which + other + curves.length) % curves.length, Math.max(at, 0));
    });
  }
};
