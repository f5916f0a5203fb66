// The home page. Readers who return are led on. Its picture: a reader ticks the ways that he expects to train, sees what the runs did,
// and moves the line, by its slider or on the bars. Away from the measured budget a row says on which
// side of the line it lies.

const book = window.proofbook;
const { store, say, all, counted } = book;
const models = all(document, "[data-survive]");

function operate(root) {
  const [task, line, show, moved, measured] = [
    "[data-task]", "input[type=range]", "[data-show]", "[data-moved]", "[data-measured]",
  ].map((selector) => root.querySelector(selector));
  const rows = all(root, "[data-need]").map((row) => {
    const end = row.querySelector(".pb-end span");
    const bars = all(row, "rect").map((rect) => [rect, parseFloat(rect.parentNode.getAttribute("width"))]);
    return { row, end, bars, tick: row.querySelector("input"), words: end.textContent, need: row.dataset.need, fits: !row.matches(".pb-over") };
  });
  const { unit, top, score, drag, yes, below, above } = root.dataset;

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
    const ticked = rows.filter(({ tick }) => tick.checked);
    ticked.forEach(({ row }) => (row.querySelector(".pb-end small").textContent = yes));
    root.toggleAttribute("data-guessed", ticked.length);
    const hits = rows.filter(({ tick, fits }) => tick.checked === fits);
    task.textContent = ticked.length ? score.replace("{n}", hits.length) : drag;
    rows.forEach(({ tick }) => (tick.disabled = true));
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

// Which strategies fit: the answer to what is chosen, which the address keeps.
const fit = document.querySelector(".pb-fit");

function answer() {
  const [model, devices, memory] = all(fit, "select");
  const [gpu] = memory.selectedOptions;
  const found = fit.querySelector(`[data-of="${model.value} ${devices.value}"]`);
  const shown = fit.querySelector("[data-answer]");
  shown.replaceChildren((found || fit.querySelector('[data-of="none"]')).content.cloneNode(true));
  const fits = (bytes) => Number(bytes) <= gpu.dataset.bytes;
  const needs = found ? shown.firstChild.dataset.layouts.split(" ") : [];
  fit.querySelector("[role=status]").textContent = found
    ? fit.dataset.says.replace("{m}", needs.length).replace("{n}", needs.filter(fits).length)
    : "Not simulated";
  all(shown, "[data-needs]").forEach((one) => one.classList.toggle("pb-over", !fits(one.dataset.needs)));
  all(shown, "table").forEach(book.stop);
  const on = shown.querySelector("[data-kept]");
  if (on) on.search = new URLSearchParams([...on.dataset.kept.split("|"), `${fit.dataset.memory}: ${gpu.text}`].map((one) => ["plan", one]));
  else shown.querySelector("code").append(` ${model.value} --devices ${devices.selectedOptions[0].dataset.mesh} --memory ${memory.value}`);
}

if (fit) {
  const chosen = all(fit, "select");
  chosen.forEach((one) => {
    const [kept] = book.kept(one.name);
    if (all(one, "option").some(({ value }) => value === kept)) one.value = kept;
  });
  fit.addEventListener("change", () => {
    answer();
    book.keep("fit", Object.fromEntries(chosen.map(({ name, value }) => [name, [value]])));
  });
  window.addEventListener("pageshow", answer);
}

// Who returns goes on at the last page, and with what is due: a queue over all topics, of which the
// first one with a due question begins.
const [begin, ...topics] = all(document, "[data-back] a");
const first = { href: begin.href, textContent: begin.textContent };

function greet() {
  const last = store.chosen("last");
  const isBack = last?.href?.startsWith(new URL(".", location).href);
  Object.assign(begin, isBack ? { href: last.href, textContent: say("go_on", last) } : first);
  const due = topics.map((topic) => counted(topic.dataset).due);
  const at = due.findIndex(Boolean);
  topics.forEach((topic, n) => (topic.hidden = n !== at));
  if (at < 0) return;
  topics[at].hash = "due=10"; // recall.js asks so many
  topics[at].textContent = say("due_today", { n: due.reduce((sum, n) => sum + n) });
}

window.addEventListener("pageshow", greet);
greet();
