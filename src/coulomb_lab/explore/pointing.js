"use strict";
// Mouse, touch and keyboard on the picture.

function listen(svg, stage, app) {
  let held = null;
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width * 360 - 180, y: (event.clientY - box.top) / box.height * 360 - 180 };
  };
  const everything = () => [...app.scene.points, ...(app.options.loss === "paco" ? app.scene.centers : [])];

  // The nearest point under the pointer; those in front first.
  function under(at, touch) {
    let best = null;
    everything().forEach((point, index) => {
      const p = projected(app, point), front = p.depth >= -0.02, far = Math.hypot(p.x - at.x, p.y - at.y);
      if (far > (front ? (touch ? 24 : 15) : 10)) return;
      const rank = far + (front ? 0 : 100);
      if (!best || rank < best.rank) best = { index, rank, front };
    });
    return best;
  }

  function toSphere(at, front) {
    const radius = radiusOf(app), x = at.x / radius, y = -at.y / radius, out = Math.hypot(x, y);
    if (!app.sphere) return out > 0.05 ? unit([x, y, 0]) : null;
    const depth = out < 1 ? Math.sqrt(1 - out * out) : 0, k = out > 1 ? 1 / out : 1;
    return unit(unseen(app.camera, [x * k, y * k, front ? depth : -depth]));
  }

  svg.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    const at = place(event), found = under(at, event.pointerType === "touch"), inside = Math.hypot(at.x, at.y) < radiusOf(app) + 12;
    if (!found && !(app.sphere && inside)) return;
    const p = found ? projected(app, everything()[found.index]) : null;
    held = { ...found, last: at, start: at, moved: false, shift: p ? { x: p.x - at.x, y: p.y - at.y } : null };
    try { svg.setPointerCapture(event.pointerId); } catch { /* the pointer is gone already */ }
    svg.classList.add(found ? "dragging" : "turning");
    if (found) stage.kept[found.index].group.focus({ focusVisible: false, preventScroll: true });
    event.preventDefault();
  });

  svg.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!held) {
      const found = event.pointerType === "mouse" ? under(at, false) : null;
      svg.classList.toggle("over", Boolean(found));
      app.mark(found && found.index !== app.anchor ? found.index : null);
      return;
    }
    if (!held.moved && Math.hypot(at.x - held.start.x, at.y - held.start.y) < 3) return;
    held.moved = true;
    if (held.shift) {
      const to = toSphere({ x: at.x + held.shift.x, y: at.y + held.shift.y }, held.front);
      if (to) app.move(held.index, to);
    } else {
      const radius = radiusOf(app);
      app.turn(-(at.x - held.last.x) / radius, (at.y - held.last.y) / radius);
    }
    held.last = at;
  });

  const release = () => {
    if (held && held.shift && !held.moved) app.choose(held.index);
    held = null;
    svg.classList.remove("dragging", "turning");
  };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", () => { held = null; svg.classList.remove("dragging", "turning"); });
  svg.addEventListener("pointerleave", () => { if (!held) app.mark(null); });

  svg.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const node = event.target.closest(".dot"), index = node ? Number(node.dataset.index) : -1, step = event.shiftKey ? 0.2 : 0.05;
    if (node && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      app.choose(index);
    } else if (way && node) {
      event.preventDefault();
      const point = everything()[index], push = tangent(point, unseen(app.camera, [way[0], way[1], 0])), size = norm(push);
      if (size > 0.15) app.move(index, walk(point, times(push, step / size)));
    } else if (way && app.sphere && event.target === svg) {
      event.preventDefault();
      app.turn(-way[0] * step * 2, -way[1] * step * 2);
    }
  });
  for (const [name, on] of [["focusin", true], ["focusout", false]]) {
    svg.addEventListener(name, (event) => {
      const node = event.target.closest(".dot"), index = node && on ? Number(node.dataset.index) : null;
      if (node && node.matches(":focus-visible")) app.mark(index !== null && index !== app.anchor ? index : null);
      if (!on) app.mark(null);
    });
  }
}
