// The home page. Its wager: a reader ticks the ways that he expects to train, and sees what the runs did.

const { store, say, all, counted } = book;
Object.assign(book.words, book.home);
const models = all(document, "[data-survive]");

models.forEach((root, n) => {
  root.hidden = n > 0;
  const [no, yes, wrong, right] = root.dataset.words.split(" ");
  all(root, ".pb-row").forEach((row) => {
    const [tick, [answer, verdict]] = [row.querySelector("input"), all(row, "small > span")];
    tick.onchange = () => {
      answer.textContent = tick.checked ? yes : no;
      verdict.textContent = `, ${tick.checked === row.matches(".pb-over") ? wrong : right}`;
    };
    tick.onchange(); // a browser may have kept it ticked
  });
  root.querySelector("[data-show]").onclick = () => {
    const rows = all(root, ".pb-row").map((row) => [row, row.querySelector("input")]);
    const ticked = rows.filter(([, tick]) => tick.checked);
    const hits = rows.filter(([row, tick]) => tick.checked !== row.matches(".pb-over"));
    rows.forEach(([, tick]) => (tick.inert = true)); // in its colour
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
const simulated = (model, count) => fit.querySelector(`[data-of="${model.value} ${count}"]`);

// Of the devices that a model was simulated on, the number nearest to the one that is chosen.
function nearest(model, devices) {
  const counts = all(devices, "option").map(({ value }) => value).filter((count) => simulated(model, count));
  const ratio = (count) => Math.abs(Math.log(count / devices.value));
  return counts.sort((a, b) => ratio(a) - ratio(b))[0] || devices.value;
}

function answer(event) {
  const [model, devices, memory] = all(fit, "select");
  const [gpu] = memory.selectedOptions;
  const asked = devices.value;
  if (event?.target === model) devices.value = nearest(model, devices);
  const { value } = devices;
  const groups = all(devices, "optgroup");
  all(devices, "option").sort((a, b) => a.value - b.value).forEach((one) => groups[simulated(model, one.value) ? 0 : 1].append(one));
  groups.forEach((group) => (group.hidden = !group.children.length));
  devices.value = value;
  const found = simulated(model, value);
  const shown = fit.querySelector("[data-answer]");
  shown.replaceChildren((found || fit.querySelector('[data-of="none"]')).content.cloneNode(true));
  const fits = (bytes) => Number(bytes) <= gpu.dataset.bytes;
  const needs = found ? shown.firstChild.dataset.layouts.split(" ") : [];
  const moved = asked === value ? "" : fit.dataset.moved.replace("{n}", value).replace("{m}", asked);
  fit.querySelector("[role=status]").textContent = found
    ? moved + fit.dataset.says.replace("{m}", needs.length).replace("{n}", needs.filter(fits).length)
    : "Not simulated";
  all(shown, "[data-needs]").forEach((one) => one.classList.toggle("pb-over", !fits(one.dataset.needs)));
  all(shown, "table").forEach(book.stop);
  if (!found) {
    const command = shown.querySelector("code > span");
    const { mesh } = devices.selectedOptions[0].dataset;
    command.textContent = `${command.textContent.trim()} ${model.value} --devices ${mesh} --memory ${memory.value}`;
    shown.querySelector("[data-clipboard-text]").dataset.clipboardText = command.textContent;
  }
}

if (fit) {
  const chosen = all(fit, "select");
  chosen.forEach((one) => {
    const [kept] = book.kept(one.name);
    if (all(one, "option").some(({ value }) => value === kept)) one.value = kept;
  });
  const [first] = all(fit, "[data-answer] > *");
  let width;
  // As high as with the answer that the page was built with, which is the longest.
  const reserve = () => {
    fit.style.minHeight = "";
    fit.querySelector("[data-answer]").replaceChildren(first);
    fit.style.minHeight = `${fit.offsetHeight}px`;
    answer();
  };
  new ResizeObserver(() => width !== (width = fit.offsetWidth) && reserve()).observe(fit);
  fit.addEventListener("change", (event) => {
    answer(event);
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
