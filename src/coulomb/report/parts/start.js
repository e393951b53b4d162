"use strict";
similarity(page.similarity || []);
const shown = atlas(page);
if (shown) {
  lasso(shown);
  coloring(shown);
}
