/** Elements from data. Text is only ever set as text: names of files and labels never become HTML. */
export const el = (tag, props = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name === "value") made.value = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};

export const button = (text, onclick, props = {}) => el("button", { type: "button", text, onclick, ...props });
export const byId = (id) => document.getElementById(id);
export const count = (n) => n.toLocaleString("en").replaceAll(",", " ");
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;
export const bytes = (n) => n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : n >= 1000 ? `${Math.round(n / 1000)} kB` : `${n} bytes`;
export const percent = (x) => `${Math.round(100 * x)}%`;
export const cosine = (x) => x.toFixed(3).replace(/^0/, "").replace(/^-0/, "-");

let timer = 0;
/** Says something in a corner for a few seconds; errors stay longer. */
export const toast = (text, error = true) => {
  const place = byId("toast");
  place.textContent = text;
  place.classList.toggle("error", error);
  place.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { place.hidden = true; }, error ? 9000 : 2500);
};

/** True where keys are text and not commands. */
export const typing = (event) => event.target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select, dialog[open]") !== null
  && event.target.closest !== undefined;
