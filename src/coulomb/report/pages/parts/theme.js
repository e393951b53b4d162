"use strict";
/** The theme follows the system until the reader chooses one; the choice applies to all pages of coulomb in this browser. */
const theme = () => {
  const button = document.getElementById("theme"), order = ["system", "light", "dark"], place = "coulomb-theme";
  const stored = () => { try { return localStorage.getItem(place); } catch { return null; } };
  const store = (name) => { try { localStorage.setItem(place, name); } catch { /* storage is disabled: the choice applies to this page */ } };
  const show = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = "Theme: " + name;
  };
  button.hidden = false;
  if (order.includes(stored())) show(stored());
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "system", next = order[(order.indexOf(now) + 1) % 3];
    show(next);
    store(next);
  });
};
