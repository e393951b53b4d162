/** What is shown while an answer is computed. */
import { el } from "./dom.js";

export const waiting = (title) => {
  const bar = el("progress", { "aria-label": title }), note = el("p", { class: "note" });
  const element = el("div", { class: "waiting", role: "status" }, el("p", { text: `${title} …` }), bar, note);
  return {
    element,
    tell: ({ share, note: text, state }) => {
      if (share === null) bar.removeAttribute("value"); else bar.value = share;
      note.textContent = state === "waiting" ? "waits for another answer" : text;
    },
    fail: (text) => element.replaceChildren(el("p", { class: "missing", role: "alert", text })),
  };
};
