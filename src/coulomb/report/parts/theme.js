"use strict";
/** The theme is the system's until the reader chooses another, which all reports in this browser then have. */
const theme = () => {
  const button = document.getElementById("theme"), order = ["system", "light", "dark"], place = "coulomb-theme";
  const kept = () => { try { return localStorage.getItem(place); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem(place, name); } catch { /* a browser that keeps nothing: this page alone */ } };
  const show = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = "Theme: " + name;
  };
  button.hidden = false;
  if (order.includes(kept())) show(kept());
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "system", next = order[(order.indexOf(now) + 1) % 3];
    show(next);
    keep(next);
  });
};
