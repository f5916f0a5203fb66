// The home page's picture: a reader ticks the ways that he expects to train, sees what the runs did,
// and moves the line, by its slider or on the bars. Away from the measured budget a row says on which
// side of the line it lies.
(function () {
  "use strict";

  const models = [...document.querySelectorAll("[data-survive]")];

  function operate(root) {
    const all = (selector) => [...root.querySelectorAll(selector)];
    const [task, line, show, moved, measured] = [
      "[data-task]", "input[type=range]", "[data-show]", "[data-moved]", "[data-measured]",
    ].map((selector) => root.querySelector(selector));
    const rows = all("[data-need]").map((row) => {
      const end = row.querySelector(".pb-end");
      const bars = [...row.querySelectorAll("rect")].map((rect) => [rect, parseFloat(rect.parentNode.getAttribute("width"))]);
      return { row, end, bars, tick: row.querySelector("input"), words: end.textContent, need: Number(row.dataset.need), fits: row.dataset.fits === "1" };
    });
    const { unit, top, score, right, wrong, below, above } = root.dataset;
    const budget = line.defaultValue;

    function move() {
      const isTested = line.value === budget;
      root.toggleAttribute("data-off", !isTested);
      const share = 100 * (isTested ? root.dataset.share : line.value / top);
      rows.forEach(({ row, end, bars, words, need, fits }) => {
        const isUnder = isTested ? fits : 100 * need <= share;
        end.textContent = isTested ? words : isUnder ? below : above;
        row.classList.toggle("pb-over", !isUnder);
        bars.forEach(([rect, width]) => rect.setAttribute("width", `${isUnder ? 100 : Math.min(100, (100 * share) / width)}%`));
      });
      all("line").forEach((one) => ["x1", "x2"].forEach((end) => one.setAttribute(end, `${share}%`)));
      all(".pb-limit svg").forEach((one, isAfter) => one.setAttribute("width", `${isAfter ? 100 - share : share}%`));
      measured.hidden = !isTested;
      moved.hidden = isTested;
      moved.textContent = `${line.value} ${unit}`;
      line.setAttribute("aria-valuetext", moved.textContent);
    }

    line.addEventListener("input", move);
    all(".pb-bars").forEach((bars) => {
      const follow = ({ clientX, target }) => {
        if (target.closest("a") || !("shown" in root.dataset)) return;
        const { left, width } = bars.getBoundingClientRect();
        line.value = (top * (clientX - left)) / width;
        move();
      };
      bars.addEventListener("click", follow);
      bars.addEventListener("pointermove", (event) => event.buttons && follow(event));
      bars.addEventListener("pointerdown", ({ target, pointerId }) => target.closest("a") || bars.setPointerCapture(pointerId));
    });
    show.addEventListener("click", () => {
      root.dataset.shown = "";
      if (rows.some(({ tick }) => tick.checked)) {
        const hits = rows.filter(({ tick, fits }) => {
          const isRight = tick.checked === fits;
          tick.parentNode.insertAdjacentHTML("beforeend", `<span class="pb-${isRight ? "right" : "wrong"}" role="img" aria-label="${isRight ? right : wrong}">${isRight ? "✓" : "✗"}</span>`);
          return isRight;
        });
        task.textContent = score.replace("{n}", hits.length).replace("{m}", rows.length);
      }
      models.forEach((other) => {
        other.dataset.shown = "";
      });
    });
    all("[data-model]").forEach((button) =>
      button.addEventListener("click", () => {
        models.forEach((other, n) => {
          other.hidden = n !== Number(button.dataset.model);
        });
        models[button.dataset.model].querySelectorAll("[data-model]")[button.dataset.model].focus();
      })
    );
    move();
  }

  models.forEach((root, n) => {
    root.hidden = n > 0;
    operate(root);
  });
})();
