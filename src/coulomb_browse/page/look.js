/** What shows a cell of the index: its picture, or its text on a card. */
import { el } from "./dom.js";
import { index, picture, row, thumbnail, wantRows } from "./store.js";

export const isText = () => index.kind === "text";

/** An element for a cell, to be filled by `showCell`. */
export const emptyLook = (props = {}) => isText()
  ? el("span", { class: `words ${props.class ?? ""}`, dir: "auto" })
  : el("img", { alt: "", decoding: "async", ...props });

/** Shows the text at `position` in an element; of a text that is not known yet, as soon as it is. */
export const showText = (element, position) => {
  element.dataset.text = position;
  element.textContent = row(position)?.text ?? "";
  if (!row(position)) wantRows([position]).then(() => { if (element.dataset.text === String(position)) element.textContent = row(position)?.text ?? ""; });
};

/** The picture or the text at `position`; `large`: as large as the page shows it. */
export const look = (position, { large = false, ...props } = {}) => {
  const made = emptyLook(props);
  if (isText()) showText(made, position); else made.src = large ? picture(position) : thumbnail(position);
  return made;
};
