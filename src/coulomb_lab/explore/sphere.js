"use strict";
// Unit vectors, great circles, and the camera that looks at them.

const plus = (a, b, by = 1) => [a[0] + by * b[0], a[1] + by * b[1], a[2] + by * b[2]];
const times = (a, by) => [a[0] * by, a[1] * by, a[2] * by];
const norm = (a) => Math.sqrt(dot(a, a));
const unit = (a) => { const size = norm(a); return size > 1e-12 ? times(a, 1 / size) : [0, 1, 0]; };
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const onCircle = (angle) => [Math.sin(angle), Math.cos(angle), 0];  // clockwise from the top

const tangent = (at, vector) => plus(vector, at, -dot(at, vector));

// Walk from `at` along the tangent vector `step`, as far as it is long.
function walk(at, step) {
  const size = norm(step);
  return size < 1e-12 ? at : unit(plus(times(at, Math.cos(size)), step, Math.sin(size) / size));
}

// Points along the great circle from a to b.
function greatCircle(a, b, pieces = 24) {
  const angle = Math.acos(clamp(dot(a, b), -1, 1)), way = tangent(a, b), size = norm(way);
  if (size < 1e-9) return [a, b];
  return Array.from({ length: pieces + 1 }, (_, k) => walk(a, times(way, angle * k / pieces / size)));
}

// A rotation by rows: what is right, up and towards the eye.
const LEVEL = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
const seen = (camera, v) => [dot(camera[0], v), dot(camera[1], v), dot(camera[2], v)];
const unseen = (camera, v) => plus(plus(times(camera[0], v[0]), camera[1], v[1]), camera[2], v[2]);

// Turn the camera by two angles, about the vertical and about the horizontal of the screen.
function turned(camera, right, up) {
  const [cr, sr, cu, su] = [Math.cos(right), Math.sin(right), Math.cos(up), Math.sin(up)];
  const x = plus(times(camera[0], cr), camera[2], sr);
  const z = plus(times(camera[2], cr), camera[0], -sr);
  const y = unit(plus(times(camera[1], cu), z, -su));
  return [unit(plus(x, y, -dot(x, y))), y, unit(cross(unit(plus(x, y, -dot(x, y))), y))];
}
