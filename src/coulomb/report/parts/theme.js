"use strict";
/** The theme is the system's until the reader chooses another. */
const theme = () => {
  const button = document.getElementById("theme"), order = ["system", "light", "dark"];
  button.hidden = false;
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "system", next = order[(order.indexOf(now) + 1) % 3];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    button.textContent = "Theme: " + next;
  });
};
