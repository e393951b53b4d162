"use strict";
/** Colors the marks; the buttons of the legend highlight one group. */
const coloring = (atlas) => {
  const { map, data, marks } = atlas;
  const legend = document.querySelector(".legend"), title = document.querySelector(".legendbox .sidetitle"), note = document.getElementById("colornote");
  if (!data.colorings.length) return;
  let current = data.colorings[0], only = -1;
  const shapes = [...map.querySelectorAll("defs path")].map((path) => path.getAttribute("d"));

  const highlight = (mark) => {
    only = only === mark ? -1 : mark;
    for (const other of legend.children) other.setAttribute("aria-pressed", String(Number(other.dataset.mark) === only));
    map.classList.toggle("dim", only >= 0);
    marks.forEach((element, i) => {
      element.classList.toggle("on", only < 0 || current.of[i] === only);
      element.classList.toggle("off", only >= 0 && current.of[i] !== only);
    });
    atlas.show((i) => only < 0 || current.of[i] === only);
  };
  const listen = () => {
    for (const button of legend.children) button.addEventListener("click", () => highlight(Number(button.dataset.mark)));
  };
  const key = ([name, color, shape, count, rest], i) => {
    const button = make("button"), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    button.type = "button";
    button.dataset.mark = i;
    button.setAttribute("aria-pressed", "false");
    button.title = count === 1 ? "1 image" : count + " images";
    svg.setAttribute("viewBox", "-6 -6 12 12");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("class", "c" + color + (rest ? " rest" : ""));
    path.setAttribute("d", shapes[shape]);
    svg.append(path);
    button.append(svg, make("bdi", "", name));
    return button;
  };
  for (const choice of document.querySelectorAll("[data-coloring]")) {
    choice.addEventListener("click", () => {
      press("[data-coloring]", choice);
      current = data.colorings.find((one) => one.key === choice.dataset.coloring);
      marks.forEach((element, i) => {
        const mark = current.marks[current.of[i]], selected = element.classList.contains("selected");
        element.setAttribute("href", "#shape" + (mark ? mark[2] : 0));
        element.setAttribute("class", (mark ? "c" + mark[1] + (mark[4] ? " rest" : "") : "none") + (selected ? " selected" : ""));
      });
      title.firstChild.data = choice.textContent[0].toUpperCase() + choice.textContent.slice(1) + " ";
      note.textContent = current.note;
      legend.replaceChildren(...current.marks.map(key));
      only = -1;
      highlight(-1);
      listen();
    });
  }
  listen();
};
