"use strict";
// Small pieces of drawing: elements, colors of the page, and layers whose elements are kept from frame to frame.

const byId = (id) => document.getElementById(id);

function svgNode(tag, attributes = {}, parent = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (parent) parent.append(node);
  return node;
}

function htmlNode(tag, className, text, parent = null) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

const put = (node, attributes) => { for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value); };

// A layer of paths: begin(), add(...) as often as needed, end() hides what is left over.
function pathLayer(parent, className) {
  const layer = svgNode("g", { class: className }, parent), kept = [];
  let used = 0;
  return {
    begin() { used = 0; },
    add(d, name, opacity = 1) {
      if (used === kept.length) kept.push(svgNode("path", {}, layer));
      put(kept[used++], { d, class: name, opacity, visibility: "visible" });
    },
    end() { for (let k = used; k < kept.length; k++) kept[k].setAttribute("visibility", "hidden"); },
  };
}

const SHAPES = {  // of the same area, by class
  0: "M0-9.5A9.5 9.5 0 1 1 0 9.5A9.5 9.5 0 1 1 0-9.5Z",
  1: "M-8.4-6.4Q-8.4-8.4-6.4-8.4H6.4Q8.4-8.4 8.4-6.4V6.4Q8.4 8.4 6.4 8.4H-6.4Q-8.4 8.4-8.4 6.4Z",
  2: "M0-11.6L11.6 0L0 11.6L-11.6 0Z",
};

// Sizes and colors are read once, and again after measure(): to read them between writes would lay out the page each time.
const measured = new Map();
const measure = () => measured.clear();
function once(key, read) {
  if (!measured.has(key)) measured.set(key, read());
  return measured.get(key);
}
const widthOf = (node) => once(node.id, () => node.clientWidth);
const pageColor = (name) => once(name, () => readColor(name));

// A color of the page as [r, g, b].
function readColor(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const hex = text.length === 4 ? text.replace(/[0-9a-f]/gi, "$&$&") : text;
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
