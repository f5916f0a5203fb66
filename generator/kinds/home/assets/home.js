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
    const task = root.querySelector("[data-task]");
    task.textContent = ticked.length ? root.dataset.score.replace("{n}", hits.length) : task.dataset.seen;
    models.forEach((other) => (other.dataset.shown = 1));
  };
  all(root, "[data-model]").forEach((button, at) => {
    button.onclick = () => {
      models.forEach((other, place) => (other.hidden = place !== at));
      all(models[at], "[data-model]")[at].focus();
    };
  });
});

// Who returns goes on at the last page, and with what is due: a queue over all topics, of which the
// first one with a due question begins.
const [begin, ...topics] = all(document, "[data-back] :is(.pb-check, [data-items])");
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
