// Figures that readers operate. The page holds one state and a table of all; the drawings of the
// others come compressed in a script of the figure's own, which is loaded when the figure comes near.
(function () {
  "use strict";

  const book = window.proofbook;
  const words = book.playing;
  const all = (root, selector) => Array.from(root.querySelectorAll(selector));
  const figures = {};
  const MOMENT = 900; // milliseconds, of a play

  const unpacked = (packed) => {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).json();
  };

  // What a figure's own script calls.
  book.play = (name, packed) => {
    unpacked(packed).then((states) => figures[name].forEach((figure) => figure.filled(states)));
  };

  // A play of the drawings: it opens at its end, and moves only where readers ask for it.
  class Player {
    constructor(root, bar) {
      this.root = root;
      [this.words, this.button, this.range] = bar.children;
      this.isStill = matchMedia("(prefers-reduced-motion: reduce)");
      this.isStill.addEventListener("change", () => this.pause());
      this.button.addEventListener("click", () => this.run());
      this.range.addEventListener("input", () => this.halt(this.range.value / 1000));
      bar.addEventListener("keydown", (event) => this.pressed(event));
      window.addEventListener("beforeprint", () => this.halt(1));
      this.halt(this.range.value / 1000);
    }

    pressed(event) {
      const to = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (to) this.step(to);
      else if (event.key === " " && event.target === this.range) this.run();
      else return;
      event.preventDefault();
    }

    // To a moment so many further on, or to the first or the last.
    step(by) {
      const last = this.moments.length - 1;
      this.halt(this.moments[Math.max(0, Math.min(last, this.told + by))][0]);
    }

    halt(at) {
      this.pause();
      this.seek(at);
    }

    pause() {
      cancelAnimationFrame(this.frame);
      this.frame = 0;
      this.button.textContent = this.isStill.matches ? words.next : words.play;
    }

    run() {
      if (this.frame) return this.pause();
      if (this.isStill.matches) return this.at < 1 ? this.step(1) : this.halt(0);
      this.button.textContent = words.pause;
      let before = performance.now();
      if (this.at >= 1) this.seek(0);
      const move = (now) => {
        this.seek(this.at + Math.max(0, now - before) / (MOMENT * this.moments.length));
        before = now;
        if (this.at < 1) this.frame = requestAnimationFrame(move);
        else this.pause();
      };
      this.frame = requestAnimationFrame(move);
    }

    seek(at) {
      const drawn = this.root.querySelector("[data-moments]");
      this.at = Math.min(1, at);
      this.moments = JSON.parse(drawn.dataset.moments);
      this.told = this.moments.findLastIndex(([from]) => from <= this.at);
      all(drawn, "[data-during]").forEach((one) => {
        const [from, until] = one.dataset.during.split(" ").map(Number);
        one.classList.toggle("pb-past", this.at < from || this.at >= until);
      });
      all(drawn, "[data-now]").forEach((line) => {
        const [start, end] = line.dataset.now.split(" ").map(Number);
        line.setAttribute("transform", `translate(${start + this.at * (end - start)})`);
        line.classList.toggle("pb-past", this.at === 1);
      });
      this.range.value = this.at * 1000;
      const said = this.moments[this.told][1];
      this.words.textContent = said.split("\n")[0]; // what follows is drawn
      this.range.setAttribute("aria-valuetext", said);
    }
  }

  function Figure(root) {
    this.root = root;
    this.states = null;
    this.at = 0;
    this.rows = all(root, "[data-state]");
    this.groups = all(root, "fieldset");
    this.budget = root.querySelector(".pb-budget-set input");
    const player = root.querySelector(".pb-player");
    if (player) this.player = new Player(root, player);
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
    if (!this.root.querySelector(".pb-states")) return; // a plan, whose states come with tables
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
    this.player?.seek(this.player.at);
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
    const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 }; // as pages print
    const counts = { budget: budget.toLocaleString("en", digits), unit, n: fitting, m: bars, k: marginal };
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
