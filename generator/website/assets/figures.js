// Figures that one operates. Stages: one at a time, forwards and back, by button, link or arrow key;
// without this file, and on paper, all of them stand below each other. Charts: each mark tells its
// value under the pointer and under the keyboard; without this file the same values stand in a table.
(function () {
  "use strict";

  var words = window.proofbook.words;

  function all(root, selector) {
    return Array.from(root.querySelectorAll(selector));
  }

  function Stepper(root) {
    var controls = root.querySelector(".pb-step-controls");
    this.stages = all(root, ".pb-stage");
    this.links = all(root, ".pb-steps a");
    this.buttons = all(controls, "button");
    this.status = controls.querySelector("[role=status]");
    this.at = 0;
    this.isWhole = false;
    controls.hidden = false;
    root.querySelector(".pb-steps").addEventListener("click", this.clicked.bind(this));
    root.querySelector(".pb-steps").addEventListener("keydown", this.pressed.bind(this));
    this.stages.forEach(function (stage, position) {
      stage.addEventListener("beforematch", this.go.bind(this, position));
    }, this);
    window.addEventListener("hashchange", this.follow.bind(this));
    this.show();
    this.follow();
  }

  // A link to a stage, from anywhere, brings it into view.
  Stepper.prototype.follow = function () {
    var position = this.stages.findIndex(function (stage) {
      return "#" + stage.id === location.hash;
    });
    if (position < 0) return;
    this.go(position);
    this.stages[position].scrollIntoView();
  };

  Stepper.prototype.go = function (position) {
    this.at = Math.max(0, Math.min(this.stages.length - 1, position));
    this.show();
  };

  Stepper.prototype.clicked = function (event) {
    var button = event.target.closest("button");
    var link = this.links.indexOf(event.target.closest("a"));
    if (link >= 0 && !this.isWhole) {
      event.preventDefault();
      this.go(link);
    } else if (button && button.dataset.step === "0") {
      this.isWhole = !this.isWhole;
      this.show();
    } else if (button) {
      this.go(this.at + Number(button.dataset.step));
    }
  };

  Stepper.prototype.pressed = function (event) {
    var to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: this.stages.length };
    if (!(event.key in to) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.go(to[event.key]);
  };

  Stepper.prototype.show = function () {
    var last = this.stages.length - 1;
    this.stages.forEach(function (stage, position) {
      if (this.isWhole || position === this.at) stage.removeAttribute("hidden");
      else stage.setAttribute("hidden", "until-found");
      this.links[position].removeAttribute("aria-current");
    }, this);
    if (!this.isWhole) this.links[this.at].setAttribute("aria-current", "step");
    this.buttons.forEach(function (button) {
      var by = Number(button.dataset.step);
      var isIdle = by && (this.isWhole || (by < 0 ? this.at === 0 : this.at === last));
      if (by) button.setAttribute("aria-disabled", String(!!isIdle));
      else button.setAttribute("aria-pressed", String(this.isWhole));
    }, this);
    this.status.textContent = this.isWhole
      ? words.all_stages
      : words.stage.replace("{n}", this.at + 1).replace("{of}", last + 1);
  };

  all(document, "[data-stepper]").forEach(function (root) {
    new Stepper(root);
  });

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
    if (!mark) return;
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
    marks.forEach(function (mark) {
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

  // A mark that has a source opens it below itself, or as near as the window allows.
  function open(mark) {
    var source = mark && document.getElementById(mark.dataset.opens);
    if (!source) return;
    source.showPopover();
    var place = mark.getBoundingClientRect();
    var top = Math.max(0, Math.min(place.bottom, innerHeight - source.offsetHeight));
    var left = Math.max(0, Math.min(place.left, innerWidth - source.offsetWidth));
    source.style.inset = top + "px auto auto " + left + "px";
    source.onbeforetoggle = function () {
      source.removeAttribute("style");
    };
    return true;
  }

  // A chart is one stop of the Tab key; arrow keys go from mark to mark.
  function chart(svg) {
    var marks = all(svg, "[data-say]");
    if (!marks.length) return;
    svg.setAttribute("role", "group");
    marks.forEach(function (mark, position) {
      mark.setAttribute("role", mark.dataset.opens ? "button" : "img");
      mark.setAttribute("aria-label", mark.dataset.say);
      mark.setAttribute("tabindex", position ? "-1" : "0");
    });
    svg.addEventListener("pointermove", function (event) {
      tell(nearest(marks, event.clientX, event.clientY));
    });
    svg.addEventListener("pointerleave", function (event) {
      if (event.relatedTarget !== tip) hide();
    });
    svg.addEventListener("focusin", function (event) {
      putAway = null;
      tell(event.target);
    });
    svg.addEventListener("focusout", hide);
    svg.addEventListener("click", function (event) {
      open(nearest(marks, event.clientX, event.clientY));
    });
    svg.addEventListener("keydown", function (event) {
      if ((event.key === "Enter" || event.key === " ") && open(event.target)) event.preventDefault();
      var at = marks.indexOf(event.target);
      var to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1 };
      to.Home = 0;
      to.End = marks.length - 1;
      if (!marks[to[event.key]] || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      marks[at].setAttribute("tabindex", "-1");
      marks[to[event.key]].setAttribute("tabindex", "0");
      marks[to[event.key]].focus();
    });
  }

  window.proofbook.chart = chart;
  all(document, ".pb-figure svg").forEach(chart);
  document.addEventListener("keydown", function (event) {
    if (event.key !== "Escape" || !told) return;
    putAway = told;
    hide();
  });
})();
