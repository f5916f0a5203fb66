// Recall: the questions that are due, one at a time. quiz.js asks, and says when it is answered;
// progress.js tells the coming days, and answers.js takes all answers out and in.
(function () {
  "use strict";

  const book = window.proofbook;
  const { store, say, made, all, inDays, daysBetween, isDueNow } = book;
  const part = (name) => document.querySelector(`[data-recall${name}]`);
  const section = part("");
  const words = Object.assign(book.words, JSON.parse(section.dataset.words));
  const said = part("-said");
  const MOST_NEW = 10; // of a sitting

  function button(text, act) {
    const element = made("button", "pb-button", text);
    element.type = "button";
    element.addEventListener("click", act);
    return element;
  }

  // ——— What is due ———

  // Each question, and then its variants on other runs, which are asked in turn.
  const asked = book.waiting(section);
  const forms = new Map(asked.map((one) => [one.id, [one]]));
  const now = () => Date.now();
  const record = (question) => {
    const found = store.of(question.id, question.digests);
    return found && (found.done || isDueNow(question.id, found)) ? found : null;
  };
  const comesBack = (question) => book.comesBack(question.id, record(question));
  const isPutOff = ({ id }) => store.later()[id] > now();
  const known = () =>
    asked.filter((one) => record(one) && !isPutOff(one)).sort((one, other) => comesBack(one) - comesBack(other));
  const actions = made("p", "pb-actions");

  const show = (question) =>
    forms.forEach((those) => those.forEach((one) => (one.box.hidden = one !== question)));

  // The form of a question that is asked now, as if it had never been answered.
  function inTurn(question) {
    const those = forms.get(question.id);
    const { attempts } = record(question) || { attempts: [] };
    const last = attempts.length ? attempts[attempts.length - 1].variant || 0 : -1;
    const at = (those.findIndex((one) => one.variant === last) + 1) % those.length;
    return (those[at] = those[at].renew());
  }

  // Questions that refer to their page: links to those that are due.
  function dueElsewhere() {
    const there = part("-elsewhere");
    if (!there) return 0;
    const lines = all(there, "li");
    const due = lines.filter((line) => {
      const [id, ...digests] = line.dataset.items.split(":");
      const found = store.of(id, digests);
      return !(line.hidden = !(found && isDueNow(id, found)));
    });
    there.hidden = !due.length;
    return due.length;
  }

  // Between sittings: what is due here, what is new, when the next comes; and what is due elsewhere.
  function offer(lead, undo) {
    const due = known().filter((one) => isDueNow(one.id, record(one)));
    const later = known().filter((one) => !isDueNow(one.id, record(one)));
    const fresh = asked.filter((one) => !record(one) && !isPutOff(one));
    const putOff = asked.filter(isPutOff);
    const next = later.length ? say("next_due", { when: day(comesBack(later[0])) }) : "";
    show(null);
    const [n, there] = [due.length, dueElsewhere()];
    const told = [n && say("now_due", { n }), there && say("due_there", { n: there })].filter(Boolean);
    said.textContent = `${lead} ${told.join(" ") || words.nothing_due} ${next}`;
    said.after(actions);
    actions.textContent = "";
    const sitting = (name, those) => {
      const values = { n: those.length, m: fresh.length };
      if (those.length) actions.append(button(say(name, values), () => sit(those)));
    };
    sitting("start_due", due);
    if (!due.length) goOn();
    sitting("start_new", fresh.slice(0, MOST_NEW));
    if (!due.length) sitting("practise", later);
    if (putOff.length) actions.append(button(say("bring_back", { n: putOff.length }), () => bringBack(putOff)));
    if (undo) actions.append(button(words.undo, undo));
    sum();
  }

  // The next topic of the queue, where one of its questions is due.
  function goOn() {
    const [link] = all(document, "a[data-page$='/recall']:not([aria-current])").filter((one) => Number(one.dataset.due));
    if (!link) return;
    const name = link.querySelector(".pb-queue-topic").textContent;
    const onward = made("a", "pb-button", say("go_on", { n: link.dataset.due, topic: name }));
    onward.href = `${link.getAttribute("href")}#due`;
    actions.append(onward);
  }

  function bringBack(those) {
    putOff(those, 0);
    offer(say("brought_back", { n: those.length }));
  }

  // Questions that wait until a time.
  function putOff(those, until) {
    store.set("later", Object.assign({}, store.later(), ...those.map(({ id }) => ({ [id]: until }))));
    book.mark();
  }

  // One question of a sitting; what is due again at once comes back at its end. `undo` takes back the
  // step that led here, which `told` tells.
  function ask(queue, at, undo, told = "") {
    if (at >= queue.length) return offer(`${told} ${words.sitting_done}`.trim(), undo);
    const question = inTurn(queue[at]);
    show(question);
    if (record(question)) question.form.querySelector(".pb-eyebrow > span").textContent = words[question.variant ? "seen_varied" : "seen_before"];
    said.textContent = `${told} ${say("n_of_m", { n: at + 1, m: queue.length })}`.trim();
    question.box.tabIndex = -1;
    question.box.focus();
    const again = () => ask(queue, at);
    const wait = (name, until) => {
      const others = queue.filter((one, position) => position < at || one.id !== question.id);
      return button(words[name], () => {
        const { id } = question;
        const before = store.later()[id] || 0;
        putOff([question], until);
        const back = () => {
          putOff([question], before);
          again();
        };
        ask(others, at, back, words[`${name}_told`]);
      });
    };
    question.box.after(actions);
    actions.textContent = "";
    actions.append(wait("not_today", inDays(1, now())), wait("never", store.NEVER));
    if (undo) actions.append(button(words.undo, undo));
    question.form.addEventListener("answered", () => {
      const rest = record(question).due <= now() ? queue.concat(queue[at]) : queue;
      const name = at + 1 < rest.length ? words.next : words.end_sitting;
      const isLost = document.activeElement === question.retry;
      question.retry.hidden = true; // it comes back by itself, and its answer can be undone
      actions.textContent = "";
      actions.append(
        button(name, () => ask(rest, at + 1)),
        button(words.undo_answer, () => {
          takeBack(question);
          again();
        })
      );
      if (isLost) actions.firstChild.focus();
      sum();
    });
  }

  function takeBack({ id, before }) {
    const former = JSON.parse(before);
    if (former) store.put(id, former);
    else store.remove(id);
  }

  // ——— The coming days; how often right, by what the reader said before ———

  const daysTo = (time) => daysBetween(now(), time);

  function day(time) {
    const n = daysTo(time);
    return n < 1 ? words.today : n === 1 ? words.tomorrow : say("in_days", { n });
  }

  // The tables of both stand in a file of their own, for readers who have answered something.
  function sum() {
    const tries = [].concat(...store.ids().map((id) => store.get(id).attempts));
    const told = {
      forecast: known().map((one) => daysTo(comesBack(one))),
      calibration: tries.filter((one) => one.nth === 1 && Number.isInteger(one.confidence)),
    };
    const names = Object.keys(told).filter((name) => !(part(`-${name}`).parentElement.hidden = !told[name].length));
    const fill = (name) => part(`-${name}`).replaceChildren(...book.progress[name](told[name], day));
    if (names.length) book.load("progress", () => names.forEach(fill));
    book.mark();
  }

  // ——— All answers as a file, once a reader asks for them ———

  const answers = (name) => (event) => book.load("answers", () => book.answers[name](event.target));
  part("-export").addEventListener("click", answers("export"));
  part("-import").addEventListener("change", answers("take"));
  part("-delete").addEventListener("click", answers("remove"));

  // ——— A sitting; the variants stand in a file of their own, which the first one loads ———

  let { variants } = section.dataset;
  let isComing;

  function sit(queue) {
    const begin = () => {
      variants = "";
      ask(queue, 0);
    };
    if (!variants) begin();
    else if (!isComing) book.load(variants, begin);
    isComing = true;
  }

  book.variants = (html) => {
    const held = made("div");
    held.innerHTML = html; // of this book, as the page is
    part("-items").append(held);
    book.waiting(held).forEach((one) => forms.get(one.id).push(one));
  };

  Object.assign(book, { button, offer, sum });
  part("-controls").hidden = false;
  book.open(); // its heading is listed now
  section.dataset.ready = "";
  offer("");
  const due = known().filter((one) => isDueNow(one.id, record(one)));
  if (location.hash === "#due" && due.length) sit(due);
})();
