"use strict";
// The landscape: the loss if the anchor stood there, from blue (low) over nothing to orange (high).

const COARSE = 38, FINE = 88, AROUND = 240;  // pixels across the sphere, moving and at rest; pieces around the circle

function landscape(state, canvas, radius, grain) {
  const size = widthOf(canvas), ratio = Math.min(2, window.devicePixelRatio || 1);
  if (!size) return;
  if (canvas.width !== Math.round(size * ratio)) canvas.width = canvas.height = Math.round(size * ratio);
  const context = canvas.getContext("2d"), middle = canvas.width / 2, reach = radius / 180 * middle;
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!state.landscape) return;
  const lossAt = (place) => {
    const points = state.scene.points.slice();
    points[state.anchor] = place;
    return anchorLoss({ ...state.scene, points }, state.anchor, state.options).value;
  };
  const color = { low: pageColor("--pull"), high: pageColor("--push") };
  if (state.sphere) sphereLandscape(state, context, middle, reach, lossAt, color, grain);
  else circleLandscape(context, middle, reach, lossAt, color);
}

// 0…1 between the least and the largest value; a flat landscape is all ½.
function scaled(values) {
  const known = values.filter(Number.isFinite), low = Math.min(...known), high = Math.max(...known);
  return values.map((value) => high - low > 1e-9 ? (value - low) / (high - low) : 0.5);
}

function tint(t, { low, high }) {
  const [r, g, b] = t < 0.5 ? low : high;
  return [r, g, b, Math.pow(Math.abs(2 * t - 1), 1.25) * 0.62];
}

function sphereLandscape(state, context, middle, reach, lossAt, color, grain) {
  const small = document.createElement("canvas"), values = [], places = [];
  small.width = small.height = grain;
  for (let row = 0; row < grain; row++) {
    for (let column = 0; column < grain; column++) {
      const x = (column + 0.5) / grain * 2 - 1, y = 1 - (row + 0.5) / grain * 2, out = Math.hypot(x, y);
      if (out > 1.06) continue;
      const flat = out > 0.995 ? [x / out * 0.995, y / out * 0.995] : [x, y];
      places.push(row * grain + column);
      values.push(lossAt(unseen(state.camera, [flat[0], flat[1], Math.sqrt(Math.max(0, 1 - flat[0] ** 2 - flat[1] ** 2))])));
    }
  }
  const pixels = new ImageData(grain, grain);
  scaled(values).forEach((t, k) => {
    const [r, g, b, alpha] = tint(t, color);
    pixels.data.set([r, g, b, 255 * alpha], 4 * places[k]);
  });
  small.getContext("2d").putImageData(pixels, 0, 0);
  context.save();
  context.beginPath();
  context.arc(middle, middle, reach, 0, 7);
  context.clip();
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(small, middle - reach, middle - reach, 2 * reach, 2 * reach);
  context.restore();
}

function circleLandscape(context, middle, reach, lossAt, color) {
  const values = scaled(Array.from({ length: AROUND }, (_, k) => lossAt(onCircle((k + 0.5) / AROUND * 2 * Math.PI))));
  const inner = reach * 0.5, thick = reach * 0.28;
  const fill = context.createConicGradient(-Math.PI / 2, middle, middle);
  context.beginPath();
  values.forEach((t, k) => {
    const turn = (k + 0.5) / AROUND, [r, g, b, alpha] = tint(t, color), out = inner + thick * (0.04 + 0.96 * t);
    fill.addColorStop(turn, `rgba(${r},${g},${b},${alpha})`);
    context.lineTo(middle + out * Math.sin(2 * Math.PI * turn), middle - out * Math.cos(2 * Math.PI * turn));
  });
  context.closePath();
  context.moveTo(middle + inner, middle);
  context.arc(middle, middle, inner, 2 * Math.PI, 0, true);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = `rgba(${pageColor("--soft").join()},.35)`;
  context.lineWidth = middle / 180;
  context.beginPath();
  context.arc(middle, middle, inner, 0, 7);
  context.stroke();
}
