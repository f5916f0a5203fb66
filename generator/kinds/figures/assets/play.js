// Figures that readers operate. The page holds one state and a table of all; the drawings of the
// others come compressed in a script of the figure's own, which is loaded when the figure comes near.

const { all } = book;
const words = book.playing;
const figures = {};

// What a figure's own script calls.
book.play = async (name, packed) => {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  figures[name].filled(await new Response(stream).json());
};

// A setting in words, as "Optimizer: SGD".
const worded = (group, input) => `${group.querySelector("legend").textContent}: ${input.nextElementSibling.textContent}`;
const setting = (group) => worded(group, group.querySelector(":checked"));

class Figure {
  constructor(root) {
    this.root = root;
    this.at = 0;
    this.rows = all(root, "[data-state]");
    this.groups = all(root, "fieldset");
    this.budget = root.querySelector(".pb-budget-set input");
    this.status = root.querySelector("[role=status]");
    this.drawn = root.querySelector(".pb-states-drawn");
    const player = root.querySelector(".pb-player");
    if (player) this.player = new book.Player(root, player);
    const form = root.querySelector("form");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", ({ target }) => {
      this.last = this.groups.indexOf(target.closest("fieldset"));
      if (target !== this.budget) this.chosen();
      const changed = this.groups.filter((group) => !group.querySelector(":checked").defaultChecked);
      book.keep(this.root.id, { [root.dataset.name]: changed.map(setting) });
    });
    this.button = root.querySelector("[data-all]");
    this.button?.addEventListener("click", () => {
      this.button.textContent = root.classList.toggle("pb-one-state") ? words.show_all : words.show_one;
      all(root, "table").forEach(book.stop); // other links are seen
      if (this.states) this.reserve();
    });
    this.budget?.addEventListener("input", () => this.limit());
    const kept = book.kept(root.dataset.name);
    this.groups.forEach((group) =>
      all(group, "input").forEach((input) => (input.checked ||= kept.includes(worded(group, input))))
    );
    this.list();
    this.limit();
    if (kept.length) this.chosen();
  }

  filled(states) {
    this.states = states;
    this.mark();
    if (this.isAwaited) this.chosen();
    if (!this.rows.length) return;
    let width;
    new ResizeObserver(() => width !== (width = this.root.offsetWidth) && this.reserve()).observe(this.root);
    this.root.querySelector("details:has(table)")?.addEventListener("toggle", () => this.reserve());
  }

  // As high as the highest of its states, so that a choice moves nothing below.
  reserve() {
    const { at } = this;
    this.root.style.removeProperty("--pb-least");
    const heights = this.states.map((_, n) => {
      this.show(n);
      return this.root.getBoundingClientRect().height;
    });
    this.root.style.setProperty("--pb-least", `${Math.max(...heights)}px`);
    this.show(at);
  }

  show(at) {
    this.at = at;
    this.drawn.innerHTML = this.states[at][1];
    all(this.drawn, "svg").forEach(book.chart);
    this.player?.seek(this.player.at);
    this.list();
    this.limit();
  }

  asked() {
    return this.groups.map((group) => Number(group.querySelector(":checked").value));
  }

  // The state of the options, or the nearest: it keeps what was chosen last, then the most others.
  chosen() {
    this.isAwaited = !this.states;
    if (!this.states) return book.load(this.root.dataset.play);
    const asked = this.asked();
    const score = ([at]) => at.reduce((sum, one, n) => sum + (one === asked[n]) * (n === this.last ? 9 : 1), 0);
    const best = this.states.reduce((a, b) => (score(b) > score(a) ? b : a));
    const others = this.groups.filter((_, n) => best[0][n] !== asked[n]);
    this.groups.forEach((group, n) => {
      all(group, "input")[best[0][n]].checked = true;
      group.classList.toggle("pb-changed", others.includes(group));
    });
    this.show(this.states.indexOf(best));
    this.mark();
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

  // Those who do not see it hear the state: what the choice has changed as well, its options, and what
  // it draws.
  say(changed) {
    const drawn = this.root.querySelector("desc").textContent;
    const too = changed && `${words.no_such_state} ${changed}. `;
    this.status.textContent = too + [...this.groups.map(setting), drawn].join("; ");
  }

  // The rows of this state; its options stand above, so their columns come with all rows only.
  list() {
    this.rows.forEach((row) => row.classList.toggle("pb-other", row.dataset.state !== String(this.at)));
    all(this.root, "table").forEach(book.stop); // whose links are others now
  }

  // Move the line to the budget, and say beside each bar whether it fits.
  limit() {
    if (!this.budget) return;
    const budget = Number(this.budget.value);
    const counts = { fits: 0, marginal: 0, over: 0 };
    all(this.root, "[data-scale]").forEach((line) => {
      const [start, end, top] = line.dataset.scale.split(" ").map(Number);
      line.setAttribute("transform", `translate(${start + Math.min(budget / top, 1) * (end - start)})`);
      Object.keys(counts).forEach((fate) => (counts[fate] = 0)); // drawings count alike
      all(line.parentNode, "[data-need]").forEach((need) => {
        const fate = need.dataset.need <= budget ? "fits" : need.dataset.least > budget ? "over" : "marginal";
        need.dataset.words ||= need.textContent.split(" · ")[0];
        need.textContent = `${need.dataset.words} · ${words[fate]}`;
        need.classList.toggle("pb-fails", fate === "over");
        counts[fate] += 1;
      });
    });
    const { fits: n, marginal: k, over } = counts;
    const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 }; // as pages print
    const { unit } = this.budget.dataset;
    const slots = { budget: budget.toLocaleString("en", digits), unit, n, m: n + k + over, k };
    const pattern = words.num_fit + (k ? words.num_marginal : "");
    const said = pattern.replace(/\{(\w+)\}/g, (slot, name) => slots[name]);
    this.budget.ariaValueText = said;
    this.root.querySelector("output").textContent = said;
  }
}

const near = new IntersectionObserver(
  (seen) => seen.filter((one) => one.isIntersecting).forEach((one) => book.load(one.target.dataset.play)),
  { rootMargin: "600px" }
);
all(document, "[data-play]").forEach((root) => {
  figures[root.dataset.name] = new Figure(root);
  near.observe(root);
});
