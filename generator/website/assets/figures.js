// Charts: each mark tells its value under the pointer and under the keyboard; without this file the
// same values stand in a table.
(function () {
  "use strict";

  function all(root, selector) {
    return Array.from(root.querySelectorAll(selector));
  }

  // One tooltip for all charts. It stays while the pointer is on it, and Escape puts it away.
  var NEAR = 32;
  var tip = document.createElement("div");
  var told = null;
  var putAway = null;
  tip.className = "pb-tip";
  tip.setAttribute("role", "tooltip");
  tip.addEventListener("pointerleave", hide);

  function hide() {
    if (told) told.removeAttribute("data-told");
    told = null;
    tip.remove();
  }

  function tell(mark) {
    if (mark === told || mark === putAway) return;
    hide();
    putAway = null;
    if (!mark || !mark.dataset.say) return;
    told = mark;
    mark.setAttribute("data-told", "");
    tip.textContent = mark.dataset.say;
    var figure = mark.closest(".pb-figure");
    figure.append(tip);
    var around = figure.getBoundingClientRect();
    var place = mark.getBoundingClientRect();
    var left = place.left + place.width / 2 - tip.offsetWidth / 2 - around.left;
    tip.style.left = Math.max(0, Math.min(left, around.width - tip.offsetWidth)) + "px";
    tip.style.top = place.top - around.top - tip.offsetHeight - 6 + "px";
  }

  function nearest(marks, x, y) {
    var best = null;
    var least = NEAR * NEAR;
    marks.forEach((mark) => {
      var box = mark.getBoundingClientRect();
      var dx = Math.max(box.left - x, 0, x - box.right);
      var dy = Math.max(box.top - y, 0, y - box.bottom);
      if (dx * dx + dy * dy < least) {
        least = dx * dx + dy * dy;
        best = mark;
      }
    });
    return best;
  }

  // A chart is one stop of the Tab key; arrow keys go from mark to mark.
  function chart(svg) {
    var marks = all(svg, "[data-say]");
    if (!marks.length) return;
    svg.setAttribute("role", "group");
    marks.forEach(function (mark, position) {
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", mark.dataset.say);
      mark.tabIndex = position ? -1 : 0;
    });
    svg.addEventListener("pointermove", (event) => {
      tell(nearest(marks, event.clientX, event.clientY));
    });
    svg.addEventListener("pointerleave", (event) => {
      if (event.relatedTarget !== tip) hide();
    });
    svg.addEventListener("focusin", (event) => {
      putAway = null;
      tell(event.target);
    });
    svg.addEventListener("focusout", hide);
    svg.addEventListener("keydown", (event) => window.proofbook.rove(event, marks));
  }

  window.proofbook.chart = chart;
  all(document, ".pb-figure svg").forEach(chart);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !told) return;
    putAway = told;
    hide();
  });
})();
