"use strict";
/** The slider under the histograms of similarity goes through the epochs. */
const similarity = (snapshots) => {
  const scrub = document.querySelector(".scrub");
  if (!scrub) return;
  const box = scrub.parentElement, slider = scrub.querySelector("input"), paths = box.querySelectorAll(".area");
  scrub.hidden = false;
  slider.addEventListener("input", () => {
    const [epoch, outlines, said] = snapshots[Number(slider.value)];
    paths.forEach((path, i) => path.setAttribute("d", outlines[i]));
    scrub.querySelector("output").textContent = epoch;
    box.querySelector(".said").textContent = said;
    box.querySelector(".plot").setAttribute("aria-label", "Histogram of cosines at epoch " + epoch + ". " + said);
    slider.setAttribute("aria-valuetext", "epoch " + epoch);
  });
};
