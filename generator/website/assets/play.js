// Figures that readers operate. The page holds one state and a table of all; the drawings of the
// others come compressed in a script of the figure's own, which is loaded when the figure comes near.

const book = window.proofbook;
const words = book.playing;
const all = (root, selector) => Array.from(root.querySelectorAll(selector));
const figures = {};
const [MOMENT, LONGEST] = [900, 12000]; // milliseconds, of a step and of a play, at speed 1

// What a figure's own script calls.
book.play = async (name, packed) => {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  figures[name].filled(await new Response(stream).json());
};

// A play of the drawings: it opens at its beginning, and moves only where readers ask for it.
class Player {
  constructor(root, bar) {
    this.root = root;
    const [back, button, next, range, speed, said] = all(bar, "button, input, select, p");
    Object.assign(this, { button, range, speed, words: said });
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    back.addEventListener("click", () => this.step(-1));
    button.addEventListener("click", () => this.run());
    next.addEventListener("click", () => this.step(1));
    range.addEventListener("input", () => this.halt(range.value / 1000));
    bar.addEventListener("keydown", (event) => this.pressed(event));
    window.addEventListener("beforeprint", () => {
      this.stood = this.at;
      this.halt(1);
    });
    window.addEventListener("afterprint", () => this.seek(this.stood));
    this.halt(range.value / 1000);
  }

  pressed(event) {
    const to = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === this.speed) return;
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
    this.button.textContent = words.play;
  }

  run() {
    if (this.frame) return this.pause();
    if (this.isStill) return this.step(1);
    this.button.textContent = words.pause;
    let before = performance.now();
    if (this.at >= 1) this.seek(0);
    const move = (now) => {
      const whole = Math.min(MOMENT * this.moments.length, LONGEST) / parseFloat(this.speed.value);
      this.seek(this.at + Math.max(0, now - before) / whole);
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

// A setting in words, as "Optimizer: SGD".
const setting = (group) => all(group, "legend, :checked + span").map((one) => one.textContent).join(": ");

class Figure {
  constructor(root) {
    this.root = root;
    this.at = 0;
    this.rows = all(root, "[data-state]");
    this.groups = all(root, "fieldset");
    this.budget = root.querySelector(".pb-budget-set input");
    this.status = root.querySelector("[role=status]");
    const player = root.querySelector(".pb-player");
    if (player) this.player = new Player(root, player);
    const form = root.querySelector("form");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", ({ target }) => {
      this.last = this.groups.indexOf(target.closest("fieldset"));
      if (target !== this.budget) this.chosen();
    });
    this.button = root.querySelector("[data-all]");
    this.button?.addEventListener("click", () => {
      this.button.setAttribute("aria-pressed", String(this.root.matches(".pb-one-state")));
      this.list();
    });
    this.budget?.addEventListener("input", () => this.limit());
    this.list();
    this.limit();
  }

  filled(states) {
    this.states = states;
    this.mark();
    if (this.isAwaited) this.chosen();
  }

  asked() {
    return this.groups.map((group) => Number(group.querySelector("input:checked").value));
  }

  // The state of the options, or the nearest: it keeps what was chosen last, then the most others.
  chosen() {
    this.isAwaited = !this.states;
    if (!this.states) return load(this.root);
    const asked = this.asked();
    const score = ([at]) => at.reduce((sum, one, n) => sum + (one === asked[n]) * (n === this.last ? 9 : 1), 0);
    const best = this.states.reduce((a, b) => (score(b) > score(a) ? b : a));
    const others = this.groups.filter((_, n) => best[0][n] !== asked[n]);
    this.at = this.states.indexOf(best);
    this.groups.forEach((group, n) => (all(group, "input")[best[0][n]].checked = true));
    const shown = this.root.querySelector(".pb-states-drawn");
    shown.innerHTML = best[1];
    all(shown, "svg").forEach(book.chart);
    this.player?.seek(this.player.at);
    this.mark();
    this.list();
    this.limit();
    this.say(others.map(setting).join("; "));
  }

  // Options that have no run beside the others that are chosen.
  mark() {
    const now = this.asked();
    this.groups.forEach((group, n) =>
      all(group, "input").forEach((input, option) => {
        const hasRun = this.states.some(([at]) => at.every((one, m) => one === (m === n ? option : now[m])));
        input.parentNode.classList.toggle("pb-no-run", !hasRun);
        input.title = hasRun ? "" : words.no_run;
      })
    );
  }

  // All hear the state: its options, and what it recommends or draws. Those who see it read only
  // which other settings it has changed.
  say(changed) {
    const advice = all(this.root, ".pb-advice > :first-child > *").map((one) => one.textContent).join(": ");
    const drawn = advice || this.root.querySelector("desc").textContent;
    const heard = document.createElement("span");
    heard.className = "pb-hidden";
    heard.textContent = [...this.groups.map(setting), drawn].join("; ");
    this.status.replaceChildren(changed ? `${words.no_such_state} ${changed}. ` : "", heard);
    this.status.classList.toggle("pb-hidden", !changed);
  }

  // The rows of this state; its options stand above, so their columns come with all rows only.
  list() {
    this.root.classList.toggle("pb-one-state", this.button?.getAttribute("aria-pressed") !== "true");
    this.rows.forEach((row) => row.classList.toggle("pb-other", row.dataset.state !== String(this.at)));
    all(this.root, "table").forEach(book.stop); // whose links are others now
  }

  // Move the line to the budget, and say beside each bar whether it fits.
  limit() {
    if (!this.budget) return;
    const { unit, powers, said: own } = this.budget.dataset;
    let budget = Number(this.budget.value);
    if (powers) {
      const [low, high] = powers.split(" ");
      budget = Number((low * (high / low) ** (budget / this.budget.max)).toPrecision(2));
    }
    const counts = { fits: 0, marginal: 0, over: 0 };
    all(this.root, "[data-scale]").forEach((line) => {
      const [start, end, top, low] = line.dataset.scale.split(" ").map(Number);
      const share = low ? Math.log(budget / low) / Math.log(top / low) : Math.min(budget / top, 1);
      line.setAttribute("transform", `translate(${low ? "0 " : ""}${start + share * (end - start)})`); // up or across
      Object.keys(counts).forEach((fate) => (counts[fate] = 0)); // drawings count alike
      all(line.parentNode, "[data-need]").forEach((need) => {
        const fate = need.dataset.need <= budget ? "fits" : need.dataset.least > budget ? "over" : "marginal";
        if (!low) {
          need.dataset.words ||= need.textContent.split(" · ")[0];
          need.textContent = `${need.dataset.words} · ${words[fate]}`;
        }
        need.classList.toggle("pb-fails", fate === "over");
        counts[fate] += 1;
      });
    });
    const { fits: n, marginal: k, over } = counts;
    const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 }; // as pages print
    const slots = { budget: budget.toLocaleString("en", digits), unit, n, m: n + k + over, k };
    const pattern = own || words.num_fit + (k ? words.num_marginal : "");
    const said = pattern.replace(/\{(\w+)\}/g, (slot, name) => slots[name]);
    this.budget.setAttribute("aria-valuetext", said);
    this.root.querySelector("output").textContent = said;
  }

  // A browser that comes back to the page has chosen before this script could hear it.
  resume() {
    this.limit();
    if (this.groups.some((group) => !group.querySelector("input:checked").defaultChecked)) this.chosen();
  }
}

function load(root) {
  if (root.isLoading) return;
  root.isLoading = true;
  document.head.append(Object.assign(document.createElement("script"), { src: root.dataset.play }));
}

const near = new IntersectionObserver(
  (seen) => seen.filter((one) => one.isIntersecting).forEach((one) => load(one.target)),
  { rootMargin: "600px" }
);
all(document, "[data-play]").forEach((root) => {
  const figure = (figures[root.dataset.name] = new Figure(root));
  window.addEventListener("pageshow", () => figure.resume());
  near.observe(root);
});
