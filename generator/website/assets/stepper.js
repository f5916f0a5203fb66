// Stages of a figure: one at a time, forwards and back, by button, link or arrow key; without this
// file, and on paper, all of them stand below each other.
(function () {
  "use strict";

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));

  class Stepper {
    constructor(root) {
      const controls = root.querySelector(".pb-step-controls");
      const steps = root.querySelector(".pb-steps");
      this.stages = all(root, ".pb-stage");
      this.links = all(root, ".pb-steps a");
      this.buttons = all(controls, "button");
      this.status = controls.querySelector("[role=status]");
      this.words = controls.dataset;
      this.at = 0;
      this.isWhole = false;
      controls.hidden = false;
      steps.addEventListener("click", (event) => this.clicked(event));
      steps.addEventListener("keydown", (event) => this.pressed(event));
      this.stages.forEach((stage, at) => stage.addEventListener("beforematch", () => this.go(at)));
      window.addEventListener("hashchange", () => this.follow());
      this.show();
      this.follow();
    }

    // A link to a stage, from anywhere, brings it into view.
    follow() {
      const at = this.stages.findIndex((stage) => `#${stage.id}` === location.hash);
      if (at < 0) return;
      this.go(at);
      this.stages[at].scrollIntoView();
    }

    go(at) {
      this.at = Math.max(0, Math.min(this.stages.length - 1, at));
      this.show();
    }

    clicked(event) {
      const button = event.target.closest("button");
      const link = this.links.indexOf(event.target.closest("a"));
      if (link >= 0 && !this.isWhole) {
        event.preventDefault();
        this.go(link);
      } else if (button && button.dataset.step === "0") {
        this.isWhole = !this.isWhole;
        this.show();
      } else if (button) {
        this.go(this.at + Number(button.dataset.step));
      }
    }

    pressed(event) {
      const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: this.stages.length };
      if (!(event.key in to) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.go(to[event.key]);
    }

    show() {
      const { at, isWhole, words } = this;
      const last = this.stages.length - 1;
      this.stages.forEach((stage, position) => {
        if (isWhole || position === at) stage.removeAttribute("hidden");
        else stage.setAttribute("hidden", "until-found");
        this.links[position].removeAttribute("aria-current");
      });
      if (!isWhole) this.links[at].setAttribute("aria-current", "step");
      this.buttons.forEach((button) => {
        const by = Number(button.dataset.step);
        const isIdle = isWhole || (by < 0 ? at === 0 : at === last);
        button.setAttribute(by ? "aria-disabled" : "aria-pressed", String(by ? isIdle : isWhole));
      });
      this.status.textContent = isWhole ? words.all : words.one.replace("{n}", at + 1).replace("{of}", last + 1);
    }
  }

  all(document, "[data-stepper]").forEach((root) => new Stepper(root));
})();
