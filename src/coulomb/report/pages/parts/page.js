"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
charts(page.charts);
theme();
