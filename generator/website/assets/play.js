// Figures that readers operate. The page holds one state and a table of all; the drawings of the
// others come compressed in a script of the figure's own, which is loaded when the figure comes near.
(function () {
  "use strict";

  const book = window.proofbook;
  const words = book.playing;
  const all = (root, selector) => Array.from(root.querySelectorAll(selector));
  const figures = {};

  const unpacked = (packed) => {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).json();
  };

  // What a figure's own script calls.
  book.play = (name, packed) => {
    unpacked(packed).then((states) => figures[name].forEach((figure) => figure.filled(states)));
  };

  function Figure(root) {
    this.root = root;
    this.states = null;
    this.at = 0;
    this.rows = all(root, "[data-state]");
    this.groups = all(root, "fieldset");
    this.budget = root.querySelector("input[type=range]");
    this.status = root.querySelector("[role=status]");
    this.button = root.querySelector("[data-all]");
    this.form = root.querySelector("form");
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("change", (event) => {
      this.last = this.groups.indexOf(event.target.closest("fieldset"));
      if (event.target !== this.budget) this.chosen();
    });
    if (this.button)
      this.button.addEventListener("click", () => {
        this.button.setAttribute("aria-pressed", String(!this.isWhole()));
        this.list();
      });
    if (this.budget) this.budget.addEventListener("input", () => this.limit());
    this.stack();
    this.list();
    this.limit();
  }

  // A phone stacks the cells of a row, each with its head.
  Figure.prototype.stack = function () {
    if (!this.button) return; // a plan, whose states come with tables of their own
    const heads = all(this.root, "thead th").map((cell) => cell.textContent);
    this.root.querySelector("table").classList.add("pb-stack", "pb-rows");
    this.rows.forEach((row) =>
      Array.from(row.children).forEach((cell, n) => {
        if (cell.textContent && cell.matches("td, .pb-choice")) cell.dataset.label = heads[n];
      })
    );
  };

  Figure.prototype.isWhole = function () {
    return this.button?.getAttribute("aria-pressed") === "true";
  };

  Figure.prototype.filled = function (states) {
    this.states = states;
    this.mark();
    if (this.isAwaited) this.chosen();
  };

  Figure.prototype.asked = function () {
    return this.groups.map((group) => Number(group.querySelector("input:checked").value));
  };

  // The state of the options, or the nearest: it keeps what was chosen last, then the most others.
  Figure.prototype.chosen = function () {
    this.isAwaited = !this.states;
    if (!this.states) return load(this.root);
    const asked = this.asked();
    const score = ([at]) =>
      at.reduce((sum, one, n) => sum + (one === asked[n]) * (n === this.last ? 9 : 1), 0);
    const best = this.states.reduce((a, b) => (score(b) > score(a) ? b : a));
    const others = this.groups.filter((_, n) => best[0][n] !== asked[n]);
    this.at = this.states.indexOf(best);
    this.groups.forEach((group, n) => {
      all(group, "input")[best[0][n]].checked = true;
    });
    const shown = this.root.querySelector(".pb-states-drawn");
    shown.innerHTML = best[1];
    all(shown, "svg").forEach(book.chart);
    this.mark();
    this.list();
    this.limit();
    // All hear the state; those who see it read only which other settings it has changed.
    const heard = Object.assign(document.createElement("span"), { className: "pb-hidden", textContent: this.said() });
    const changed = others.map(setting).join("; ");
    this.status.replaceChildren(changed ? `${words.no_such_state} ${changed}. ` : "", heard);
    this.status.classList.toggle("pb-hidden", !changed);
  };

  // Options that have no run beside the others that are chosen.
  Figure.prototype.mark = function () {
    const now = this.asked();
    this.groups.forEach((group, n) =>
      all(group, "input").forEach((input, option) => {
        const hasRun = this.states.some(([at]) => at.every((one, m) => one === (m === n ? option : now[m])));
        input.parentNode.classList.toggle("pb-no-run", !hasRun);
        input.title = hasRun ? "" : words.no_run;
      })
    );
  };

  // A setting in words, as "Optimizer: SGD".
  const setting = (group) => all(group, "legend, :checked + span").map((one) => one.textContent).join(": ");

  // The state in words: its options, and what it recommends or the first number of each of its rows.
  Figure.prototype.said = function () {
    const names = this.groups.map(setting);
    const advice = all(this.root, ".pb-advice > :first-child > *").map((one) => one.textContent);
    if (advice.length) return names.concat(advice.join(": ")).join("; ");
    const facts = this.rows.filter((row) => !row.matches(".pb-other")).map((row) =>
      all(row, "th:not(.pb-choice)").concat(row.querySelector(".pb-number")).map((one) => one.textContent).join(" ")
    );
    const head = this.root.querySelector("thead .pb-number").textContent;
    return names.concat(`${head}: ${facts.join(", ")}`).join("; ");
  };

  // The rows of this state; its options stand above, so their columns come with all rows only.
  Figure.prototype.list = function () {
    this.root.classList.toggle("pb-one-state", !this.isWhole());
    this.rows.forEach((row) => {
      row.classList.toggle("pb-other", row.dataset.state !== String(this.at));
    });
    all(this.root, "table").forEach(book.stop); // whose links are others now
  };

  // Move the line to the budget, and say beside each bar whether it fits.
  Figure.prototype.limit = function () {
    if (!this.budget) return;
    const budget = Number(this.budget.value);
    let fitting = 0;
    let marginal = 0;
    let bars = 0;
    all(this.root, "[data-scale]").forEach((line) => {
      const [start, end, top] = line.dataset.scale.split(" ").map(Number);
      const x = start + Math.min(budget / top, 1) * (end - start);
      line.setAttribute("transform", `translate(${x})`);
      const needs = all(line.parentNode, "[data-need]");
      bars = needs.length;
      fitting = marginal = 0;
      needs.forEach((need) => {
        const fits = Number(need.dataset.need) <= budget;
        const over = Number(need.dataset.least) > budget;
        need.dataset.words = need.dataset.words || need.textContent;
        need.textContent = need.dataset.words + " · " + (fits ? words.fits : over ? words.over : words.marginal);
        need.classList.toggle("pb-fails", over);
        fitting += fits;
        marginal += !fits && !over;
      });
    });
    const unit = this.budget.dataset.unit;
    const counts = { budget: Number(budget.toPrecision(3)), unit, n: fitting, m: bars, k: marginal };
    const pattern = words.num_fit + (marginal ? words.num_marginal : "");
    const said = pattern.replace(/\{(\w+)\}/g, (slot, name) => counts[name]);
    this.budget.setAttribute("aria-valuetext", said);
    this.form.querySelector("output").textContent = said;
    const nearest = Number(this.budget.defaultValue);
    all(this.root, "[data-line]").forEach((one) => {
      one.hidden = budget !== nearest;
    });
  };

  // A browser that comes back to the page has chosen before this script could hear it.
  Figure.prototype.resume = function () {
    this.limit();
    if (this.groups.some((group) => !group.querySelector("input:checked").defaultChecked)) this.chosen();
  };

  // A link to a run whose state is not shown: all states are listed then.
  Figure.prototype.arrive = function () {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.closest(".pb-other") || !this.root.contains(target)) return;
    this.button.setAttribute("aria-pressed", "true");
    this.list();
    target.scrollIntoView();
  };

  function load(root) {
    if (root.isLoading) return;
    root.isLoading = true;
    const script = document.createElement("script");
    script.src = root.dataset.play;
    document.head.append(script);
  }

  const near = new IntersectionObserver(
    (seen) => seen.filter((one) => one.isIntersecting).forEach((one) => load(one.target)),
    { rootMargin: "600px" }
  );
  all(document, "[data-play]").forEach((root) => {
    const name = root.dataset.name;
    const figure = new Figure(root);
    figures[name] = (figures[name] || []).concat(figure);
    window.addEventListener("hashchange", () => figure.arrive());
    window.addEventListener("pageshow", () => figure.resume());
    figure.arrive();
    near.observe(root);
  });
})();
