// The home page. Its wager: a reader ticks the ways that he expects to train, and sees what the runs did.

const { store, say, all, counted } = book;
Object.assign(book.words, book.home);
const models = all(document, "[data-survive]");

models.forEach((root, n) => {
  root.hidden = n > 0;
  root.querySelector("[data-show]").onclick = () => {
    const rows = all(root, ".pb-row").map((row) => [row, row.querySelector("input")]);
    const ticked = rows.filter(([, tick]) => tick.checked);
    const hits = rows.filter(([row, tick]) => tick.checked !== row.matches(".pb-over"));
    rows.forEach(([, tick]) => (tick.disabled = true));
    ticked.forEach(([row]) => (row.querySelector(".pb-end small").textContent = root.dataset.yes));
    root.toggleAttribute("data-guessed", ticked.length);
    if (ticked.length) root.querySelector("[data-task]").textContent = root.dataset.score.replace("{n}", hits.length);
    models.forEach((other) => (other.dataset.shown = 1));
  };
  all(root, "[data-model]").forEach((button, at) => {
    button.onclick = () => {
      models.forEach((other, n) => (other.hidden = n !== at));
      all(models[at], "[data-model]")[at].focus();
    };
  });
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
  addEventListener("pageshow", answer);
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

addEventListener("pageshow", greet);
greet();
