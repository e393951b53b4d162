"use strict";
// Ready-made scenes, on the circle and on the sphere. Image 1 is the anchor's.

// A small reproducible generator of numbers in [0, 1).
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

// A point at `angle` from the front pole; `around` is used on the sphere alone, where a negative angle is the other side.
function placed(sphere, angle, around) {
  if (!sphere) return onCircle(angle);
  const out = Math.sin(angle);
  return [out * Math.cos(around), out * Math.sin(around), Math.cos(angle)];
}

// Directions that cover the sphere evenly, the first at the front pole.
function spiral(k, count) {
  const z = count > 1 ? 1 - 2 * k / (count - 1) * (1 - 1 / count) : 1;
  return placed(true, Math.acos(clamp(z, -1, 1)), k * 2.399963 + 0.6);
}

const PRESETS = {
  even: {
    name: "Evenly spread", classes: 3,
    views(i, images, sphere, random) {
      const at = sphere ? spiral(i, images) : onCircle(2 * Math.PI * i / images);
      return [near(at, 0.13, sphere, random), near(at, -0.13, sphere, random)];
    },
  },
  hard: {
    name: "One hard negative", classes: 3,
    views(i, images, sphere, random) {
      if (i === 0) return [placed(sphere, 0, 0), placed(sphere, 0.62, 0.4)];
      if (i === 1) return [placed(sphere, -0.34, -0.5), placed(sphere, -0.95, -0.2)];
      const at = sphere ? placed(true, 1.35 + 1.5 * random(), (i - 2) * 2.399963 + 1.4)
        : onCircle(1.5 + (i - 2) / Math.max(1, images - 3) * 3.3);
      return [near(at, 0.14, sphere, random), near(at, -0.14, sphere, random)];
    },
  },
  collapsed: {
    name: "Collapsed", classes: 3,
    views(i, images, sphere, random) {
      const spot = (k) => sphere ? placed(true, 0.42 * Math.sqrt(random() + 0.03), random() * 6.283)
        : onCircle(((2 * i + k) * 0.618 % 1 - 0.5) * 1.1);
      return [spot(0), spot(1)];
    },
  },
  classes: {
    name: "Two classes", classes: 2, showClasses: true, label: (i) => i % 2,
    views(i, images, sphere, random) {
      const side = i % 2, place = ((Math.floor(i / 2) + 0.5) / Math.ceil(images / 2) - 0.5) * 2.1 + (side ? Math.PI : 0);
      const at = sphere ? placed(true, (side ? 2.0 : 0.25) + 0.5 * random(), i * 2.1 + (side ? 0.4 : 0)) : onCircle(place);
      return [near(at, 0.15, sphere, random), near(at, -0.15, sphere, random)];
    },
  },
  false: {
    name: "A false negative", classes: 3, showClasses: true, label: (i) => i < 2 ? 0 : 1 + i % 2,
    views(i, images, sphere, random) {
      if (i === 0) return [placed(sphere, 0, 0), placed(sphere, 0.72, 0.5)];
      if (i === 1) return [placed(sphere, -0.28, -0.2), placed(sphere, -0.62, 0.3)];
      const at = sphere ? placed(true, 1.3 + 1.5 * random(), (i - 2) * 2.399963 + 1.2)
        : onCircle(1.55 + (i - 2) / Math.max(1, images - 3) * 3.2);
      return [near(at, 0.14, sphere, random), near(at, -0.14, sphere, random)];
    },
  },
};

// A neighbor of a point: along the circle, or in a random direction on the sphere.
function near(at, by, sphere, random) {
  if (!sphere) return walk(at, times([at[1], -at[0], 0], by));
  const way = tangent(at, [random() - 0.5, random() - 0.5, random() - 0.5]);
  return walk(at, times(unit(way), by * 1.2));
}

function sceneOf(name, images, sphere) {
  const preset = PRESETS[name], random = randomNumbers(7 + images), first = [], second = [], labels = [];
  for (let i = 0; i < images; i++) {
    const [x, y] = preset.views(i, images, sphere, random);
    first.push(x);
    second.push(y);
    labels.push(preset.label ? preset.label(i) : i % preset.classes);
  }
  const scene = { points: [...first, ...second], labels: [...labels, ...labels] };
  return { ...scene, centers: centersOf(scene, preset.classes, sphere) };
}

// Near the middle of each class, or spread out where a class has no middle.
function centersOf(scene, classes, sphere) {
  return Array.from({ length: classes }, (_, c) => {
    const sum = scene.points.reduce((all, point, i) => scene.labels[i] === c ? plus(all, point) : all, [0, 0, 0]);
    const aside = 2 * Math.PI * c / classes + 0.5;
    if (norm(sum) < 0.6) return sphere ? placed(true, 1.2, aside) : onCircle(aside);
    return sphere ? walk(unit(sum), times(unit(tangent(unit(sum), [1, 0.4, 0])), 0.3)) : near(unit(sum), 0.32, false);
  });
}
