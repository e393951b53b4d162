"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
charts(page.charts);
theme();
similarity(page.similarity || []);
const shown = atlas(page);
if (shown) {
  lasso(shown);
  colouring(shown);
}
