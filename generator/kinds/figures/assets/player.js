// The player of a figure: it shows the moments of its drawings one after another.

const { all } = book;
const [MOMENT, LONGEST] = [900, 12000]; // milliseconds, of a step and of a play, at speed 1

// A play of the drawings: it opens at its beginning, and moves only where readers ask for it.
book.Player = class {
  constructor(root, bar) {
    this.root = root;
    const [back, button, next, speed, range, said] = all(bar, "button, input, select, p");
    Object.assign(this, { button, range, speed, words: said });
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    back.addEventListener("click", () => this.step(-1));
    button.addEventListener("click", () => this.run());
    next.addEventListener("click", () => this.step(1));
    range.addEventListener("input", () => this.halt(range.value / 1000));
    bar.addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("beforeprint", () => {
      this.stood = this.at;
      this.halt(1);
    });
    addEventListener("afterprint", () => this.seek(this.stood));
    this.halt(0);
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
    this.button.textContent = book.playing.play;
  }

  run() {
    if (this.frame) return this.pause();
    if (this.isStill) return this.step(1);
    this.button.textContent = book.playing.pause;
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
      const played = this.at * (end - start);
      line.setAttribute("transform", `translate(${start + played})`);
      const filled = line.previousElementSibling;
      const { y, height } = filled.viewBox.baseVal;
      filled.setAttribute("width", played);
      filled.setAttribute("viewBox", `${start} ${y} ${played} ${height}`);
      line.classList.toggle("pb-past", this.at === 0 || this.at === 1); // at the start it would cross labels
    });
    this.range.value = this.at * 1000;
    const said = this.moments[this.told][1];
    this.words.textContent = said.split("\n")[0]; // what follows is drawn
    this.range.ariaValueText = said;
  }
};
