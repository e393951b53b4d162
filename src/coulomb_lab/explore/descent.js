"use strict";
// Let go: every point follows the gradient of the whole batch, all being anchors in turn.

// One step on the sphere: {scene, moved}, moved being the longest way of a point. The gradient is multiplied by τ, so that
// a temperature changes where points go rather than how fast; no point goes further than `most` at once.
function descend(scene, options, rate = 0.04, most = 0.03) {
  const found = batchLoss(scene, options), speed = rate * scene.points.length * (options.loss === "simple" ? 1 : options.temperature);
  let moved = 0;
  const follow = (point, gradient) => {
    const size = norm(gradient) * speed, step = Math.min(size, most);
    moved = Math.max(moved, step);
    return size > 0 ? walk(point, times(gradient, -step / norm(gradient))) : point;
  };
  const points = scene.points.map((point, i) => follow(point, found.points[i]));
  const centers = scene.centers.map((center, c) => follow(center, found.centers[c]));
  return { scene: { ...scene, points, centers }, moved };
}

// Points that lie in one place exactly feel no force: a breath moves them apart.
function breathed(scene, sphere, random) {
  const shift = (point) => {
    const way = sphere ? [random() - 0.5, random() - 0.5, random() - 0.5] : times([point[1], -point[0], 0], random() - 0.5);
    return walk(point, times(tangent(point, way), 2e-3));
  };
  return { ...scene, points: scene.points.map(shift) };
}
