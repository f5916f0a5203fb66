// Recall: the questions that are due, one at a time, and all answers as a file. question.js asks, and
// says when a question is answered.

const { store, say, counted, made, button, all, daysBetween, isDueNow } = book;
const part = (name) => document.querySelector(`[data-recall${name}]`);
const section = part("");
const words = Object.assign(book.words, book.recall);
const said = part("-said");
const done = part("-done");
const actions = made("p", "pb-actions");
const MOST = 10; // questions of a sitting

// ——— What is due ———

// Each question, and then its variants on other runs, which are asked in turn.
const asked = book.unasked(section);
const forms = new Map(asked.map((one) => [one.id, [one]]));
const record = ({ id, digests }) => {
  const found = store.of(id, digests);
  return found && (found.done || isDueNow(found)) ? found : null;
};
const isDue = (question) => isDueNow(record(question));

// Whether its last answer, which no prediction is, was not correct at the first attempt.
function isMissed(question) {
  const { kind, attempts } = record(question);
  const last = attempts.at(-1);
  return kind !== "predict" && !(last.is_right && (last.nth || 1) === 1);
}

const show = (question) =>
  forms.forEach((those) => those.forEach((one) => (one.box.hidden = one !== question)));

// The form of a question that is asked now, as if it had never been answered.
function inTurn(question) {
  const those = forms.get(question.id);
  const last = record(question)?.attempts.at(-1);
  const before = last ? those.findIndex((one) => one.variant === (last.variant || 0)) : -1;
  const at = (before + 1) % those.length;
  return (those[at] = those[at].renew());
}

// Questions that refer to their page: links to those that are due.
function dueElsewhere() {
  const there = part("-elsewhere");
  if (!there) return 0;
  const due = all(there, "li").filter((line) => {
    const [id, ...digests] = line.dataset.items.split(":");
    const found = store.of(id, digests);
    return !(line.hidden = !(found && isDueNow(found)));
  });
  there.hidden = !due.length;
  return due.length;
}

// Between sittings: what is due here, what is new, when the next comes; and what is due elsewhere.
function offer(lead) {
  const fresh = asked.filter((one) => !record(one));
  const known = asked.filter(record).sort((one, other) => record(one).due - record(other).due);
  const due = known.filter(isDue);
  const missed = known.filter(isMissed);
  const later = known.filter((one) => !isDue(one));
  show(null);
  const [n, there] = [due.length, dueElsewhere()];
  const told = [n && say("now_due", { n }), there && say("due_there", { n: there })].filter(Boolean);
  const next = later.length ? say("next_due", { when: day(record(later[0]).due) }) : "";
  said.textContent = `${lead} ${told.join(" ") || words.nothing_due} ${next}`;
  said.after(actions);
  actions.textContent = "";
  const sitting = (name, of) => {
    const those = of.slice(0, MOST);
    const text = say(name, { n: those.length, m: of.length });
    if (those.length) actions.append(button(text, () => sit(those)));
  };
  sitting("retake", missed);
  if (!due.every(isMissed)) sitting("start_due", due);
  sitting("start_new", fresh);
  if (!due.length) sitting("practise", later);
  if (left >= 0) leadOn();
  actions.firstChild?.classList.add("pb-check"); // the main one
  book.mark();
}

function day(time) {
  const n = daysBetween(Date.now(), time);
  return n < 1 ? words.today : n === 1 ? words.tomorrow : say("in_days", { n });
}

// One question of a sitting. At its end, what was wrong can be retaken.
function ask(queue, at) {
  const m = queue.length;
  if (at >= m) {
    const graded = queue.filter((one) => record(one).kind !== "predict");
    const n = graded.filter((one) => !isMissed(one)).length;
    offer(graded.length ? say("sitting_done", { n, m: graded.length }) : "");
    section.scrollIntoView({ behavior: "instant" });
    actions.firstChild?.focus({ preventScroll: true });
    return;
  }
  const question = inTurn(queue[at]);
  show(question);
  if (record(question)) question.form.querySelector(".pb-eyebrow > span").textContent = words[question.variant ? "seen_varied" : "seen_before"];
  said.textContent = say("n_of_m", { n: at + 1, m });
  question.box.tabIndex = -1;
  question.box.focus({ preventScroll: true });
  question.form.querySelector(".pb-program .pb-option")?.scrollIntoView({ block: "center", behavior: "instant" });
  section.scrollIntoView({ behavior: "instant" });
  question.box.after(actions);
  actions.replaceChildren();
  question.form.addEventListener("answered", () => {
    const name = at + 1 < m ? words.next : words.end_sitting;
    const isLost = document.activeElement === question.retry;
    question.retry.hidden = true; // it can be retaken at the end
    actions.replaceChildren(button(name, () => ask(queue, at + 1)));
    if (isLost) actions.firstChild.focus();
  });
}

// ——— A sitting; the variants stand in a file of their own, which the first one loads ———

let { variants } = section.dataset;

function sit(queue) {
  const begin = () => {
    variants = "";
    ask(queue, 0);
  };
  if (variants) book.load(variants, begin, begin);
  else begin();
}

book.variants = (html) => {
  const held = made("div");
  held.innerHTML = html; // of this book, as the page is
  part("-items").append(held);
  book.unasked(held).forEach((one) => forms.get(one.id).push(one));
};

// ——— All answers as a file, out and in again, or deleted ———

part("-export").onclick = () => {
  const items = Object.fromEntries(store.ids().map((id) => [id, store.get(id)]));
  const text = JSON.stringify({ proofbook: 1, exported_at: new Date().toISOString(), items }, null, 1);
  const link = made("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "proofbook-answers.json";
  link.click();
  done.textContent = say("exported", { n: store.ids().length });
};

// A file is taken whole or not at all; of each item the newer stays.
function taken(text) {
  const { proofbook, items } = JSON.parse(text);
  const ids = Object.keys(items);
  if (proofbook !== 1 || !ids.every((id) => store.isSound(items[id]))) return words.import_foreign;
  const last = (one) => one.attempts.at(-1).at;
  const newer = ids.filter((id) => !store.get(id) || last(store.get(id)) < last(items[id]));
  const kept = newer.filter((id) => store.put(id, items[id]));
  offer("");
  return say("imported", { n: newer.length }) + (kept.length < newer.length ? ` ${words.unkept}` : "");
}

part("-import").onchange = async ({ target }) => {
  const [file] = target.files;
  target.value = "";
  try {
    done.textContent = taken(await file.text()); // may be gone by now
  } catch {
    done.textContent = words.import_foreign;
  }
};

part("-delete").onclick = () => {
  if (!confirm(say("delete_sure", { n: store.ids().length }))) return;
  store.clear();
  offer("");
  done.textContent = words.deleted;
};

// ——— Home's queue of what is due in all topics: `#due=10` asks ten here, or fewer and then the next topic ———

let left = Number(/^#due=(\d+)$/.exec(location.hash)?.[1]); // of ten; elsewhere no number

function leadOn() {
  const next = all(document, ".pb-queue a").find((link) => counted(link.dataset).due);
  if (!next) return;
  const called = next.firstChild.textContent;
  const link = made("a", "pb-button", say("next_topic", { called, n: counted(next.dataset).due }));
  link.href = `${next.href}#due=${left || MOST}`;
  actions.prepend(link);
}

part("-controls").hidden = false;
book.open(); // its heading is listed now
section.dataset.ready = "";
const first = asked.filter((one) => left > 0 && record(one) && isDue(one)).slice(0, left);
left -= first.length;
offer("");
if (first.length) sit(first);
