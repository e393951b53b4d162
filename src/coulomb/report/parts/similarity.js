"use strict";
/** The slider under the similarity histograms selects an epoch. */
const similarity = (snapshots) => {
  const scrub = document.querySelector(".scrub");
  if (!scrub) return;
  const box = scrub.parentElement, slider = scrub.querySelector("input"), paths = box.querySelectorAll(".area");
  scrub.hidden = false;
  slider.addEventListener("input", () => {
    const [epoch, outlines, sentence] = snapshots[Number(slider.value)];
    paths.forEach((path, i) => path.setAttribute("d", outlines[i]));
    scrub.querySelector("output").textContent = epoch;
    box.querySelector(".sentence-of-epoch").textContent = sentence;
    box.querySelector(".plot").setAttribute("aria-label", "Histogram of cosines at epoch " + epoch + ". " + sentence);
    slider.setAttribute("aria-valuetext", "epoch " + epoch);
  });
};
