// The home page. Readers who return are led on. Its picture: a reader ticks the ways that he expects to train, sees what the runs did,
// and moves the line, by its slider or on the bars. Away from the measured budget a row says on which
// side of the line it lies.

const { store, say, all, counted } = window.proofbook;
const models = all(document, "[data-survive]");

function operate(root) {
  const [task, line, show, moved, measured] = [
    "[data-task]", "input[type=range]", "[data-show]", "[data-moved]", "[data-measured]",
  ].map((selector) => root.querySelector(selector));
  const rows = all(root, "[data-need]").map((row) => {
    const end = row.querySelector(".pb-end");
    const bars = all(row, "rect").map((rect) => [rect, parseFloat(rect.parentNode.getAttribute("width"))]);
    return { row, end, bars, tick: row.querySelector("input"), words: end.textContent, need: row.dataset.need, fits: !row.matches(".pb-over") };
  });
  const { unit, top, score, drag, right, wrong, below, above } = root.dataset;

  function move() {
    const isTested = line.value === line.defaultValue;
    root.toggleAttribute("data-off", !isTested);
    const share = 100 * (isTested ? root.dataset.share : line.value / top);
    rows.forEach(({ row, end, bars, words, need, fits }) => {
      const isUnder = isTested ? fits : 100 * need <= share;
      end.textContent = isTested ? words : isUnder ? below : above;
      row.classList.toggle("pb-over", !isUnder);
      bars.forEach(([rect, width]) => rect.setAttribute("width", `${(100 * share) / width}%`));
    });
    all(root, "line").forEach((one) => ["x1", "x2"].forEach((end) => one.setAttribute(end, `${share}%`)));
    all(root, ".pb-limit svg").forEach((one, isAfter) => one.setAttribute("width", `${isAfter ? 100 - share : share}%`));
    measured.hidden = !isTested;
    moved.hidden = isTested;
    line.ariaValueText = moved.textContent = `${line.value} ${unit}`;
  }

  line.oninput = move;
  all(root, ".pb-bars").forEach((bars) => {
    bars.onpointerdown = bars.onpointermove = ({ buttons, clientX, pointerId, target }) => {
      if (!buttons || target.closest("a") || !root.dataset.shown) return;
      bars.setPointerCapture(pointerId);
      const { left, width } = bars.getBoundingClientRect();
      line.value = (top * (clientX - left)) / width;
      move();
    };
  });
  show.onclick = () => {
    task.textContent = drag;
    if (rows.some(({ tick }) => tick.checked)) {
      const hits = rows.filter(({ tick, fits }) => {
        const isRight = tick.checked === fits;
        tick.parentNode.insertAdjacentHTML("beforeend", `<span class="pb-${isRight ? "right" : "wrong"}" role="img" aria-label="${isRight ? right : wrong}">${isRight ? "✓" : "✗"}</span>`);
        return isRight;
      });
      task.textContent = score.replace("{n}", hits.length);
    }
    models.forEach((other) => (other.dataset.shown = 1));
  };
  all(root, "[data-model]").forEach((button, at) => {
    button.onclick = () => {
      models.forEach((other, n) => (other.hidden = n !== at));
      all(models[at], "[data-model]")[at].focus();
    };
  });
  move();
}

models.forEach((root, n) => {
  root.hidden = n > 0;
  operate(root);
});

// Who returns goes on at the last page, and with what is due: a queue over all topics, of which the
// first one with a due question begins.
const back = document.querySelector("[data-back]");

function greet() {
  const last = store.chosen("last");
  const [on, ...topics] = all(back, "a");
  on.hidden = !last?.href?.startsWith(new URL(".", location).href);
  if (!on.hidden) Object.assign(on, { href: last.href, textContent: say("go_on", last) });
  const due = topics.map((topic) => counted(topic.dataset).due);
  const first = due.findIndex(Boolean);
  topics.forEach((topic, at) => (topic.hidden = at !== first));
  if (first >= 0) topics[first].hash = "due=10"; // recall.js asks so many
  if (first >= 0) topics[first].textContent = say("due_today", { n: due.reduce((sum, n) => sum + n) });
  back.hidden = on.hidden && first < 0;
}

window.addEventListener("pageshow", greet);
greet();
