// Stages of a figure: one at a time, forwards and back, by button, link or arrow key; without this
// file, and on paper, all of them stand below each other.
(function () {
  "use strict";

  function all(root, selector) {
    return Array.from(root.querySelectorAll(selector));
  }

  function Stepper(root) {
    var controls = root.querySelector(".pb-step-controls");
    this.stages = all(root, ".pb-stage");
    this.links = all(root, ".pb-steps a");
    this.buttons = all(controls, "button");
    this.status = controls.querySelector("[role=status]");
    this.words = { all: controls.dataset.all, one: controls.dataset.one };
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
      ? this.words.all
      : this.words.one.replace("{n}", this.at + 1).replace("{of}", last + 1);
  };

  all(document, "[data-stepper]").forEach(function (root) {
    new Stepper(root);
  });
})();
