// Recall: the questions that are due, one at a time; the coming days; how often the reader was right
// when sure; and all answers as a file, out and in again. quiz.js asks, and says when it is answered.
(function () {
  "use strict";

  const book = window.proofbook;
  const { store, say, made, inDays } = book;
  const part = (name) => document.querySelector(`[data-recall${name}]`);
  const section = part("");
  const words = Object.assign(book.words, JSON.parse(section.dataset.words));
  const said = part("-said");
  const done = part("-done");
  const DAYS = 7; // of the forecast
  const MOST_NEW = 10; // of a sitting
  const LARGEST = 5e6; // bytes of a file

  function button(text, act) {
    const element = made("button", "pb-button", text);
    element.type = "button";
    element.addEventListener("click", act);
    return element;
  }

  // ——— What is due ———

  const asked = book.questions.filter((one) => section.contains(one.form));
  const now = () => Date.now();
  const record = (question) => {
    const found = store.of(question.id, question.digests);
    return found && found.done ? found : null;
  };
  const known = () => asked.filter(record).sort((one, other) => record(one).due - record(other).due);
  const actions = made("p", "pb-actions");

  const show = (question) => asked.forEach((one) => (one.box.hidden = one !== question));

  // Between sittings: what is due, what is new, and when the next comes.
  function offer(lead) {
    const due = known().filter((one) => record(one).due <= now());
    const later = known().filter((one) => record(one).due > now());
    const fresh = asked.filter((one) => !record(one));
    const next = later.length ? say("next_due", { when: day(record(later[0]).due) }) : "";
    show(null);
    said.textContent = `${lead} ${due.length ? say("now_due", { n: due.length }) : words.nothing_due} ${next}`;
    said.after(actions);
    actions.textContent = "";
    const sitting = (name, those) => {
      const values = { n: those.length, m: fresh.length };
      if (those.length) actions.append(button(say(name, values), () => ask(those, 0)));
    };
    sitting("start_due", due);
    sitting("start_new", fresh.slice(0, MOST_NEW));
    if (!due.length) sitting("practise", later);
    sum();
  }

  // One question of a sitting; what is due again at once comes back at its end.
  function ask(queue, at) {
    if (at === queue.length) return offer(words.sitting_done);
    const question = queue[at].renew();
    asked[asked.findIndex((one) => one.id === question.id)] = question;
    show(question);
    if (record(question)) question.form.querySelector(".pb-eyebrow > span").textContent = words.seen_before;
    actions.textContent = "";
    said.textContent = say("n_of_m", { n: at + 1, m: queue.length });
    question.box.tabIndex = -1;
    question.box.focus();
    question.form.addEventListener("answered", () => {
      const rest = record(question).due <= now() ? queue.concat(question) : queue;
      const name = at + 1 < rest.length ? words.next : words.end_sitting;
      question.box.after(actions);
      actions.append(button(name, () => ask(rest, at + 1)));
      sum();
    });
  }

  // ——— The coming days ———

  const daysTo = (time) => Math.round((inDays(0, time) - inDays(0, now())) / 864e5);

  function day(time) {
    const n = daysTo(time);
    return n < 1 ? words.today : n === 1 ? words.tomorrow : say("in_days", { n });
  }

  function table(head, rows) {
    const line = (cells, isHead) => {
      const row = made("tr");
      cells.forEach((cell, position) => {
        const isTitle = cell && (isHead || !position);
        const one = made(isTitle ? "th" : "td", position ? "pb-label" : "");
        if (isTitle) one.scope = isHead ? "col" : "row";
        one.append(cell);
        row.append(one);
      });
      return row;
    };
    const whole = made("table", "pb-table");
    const top = made("thead");
    const body = made("tbody");
    top.append(line(head, true));
    body.append(...rows.map((cells) => line(cells, false)));
    whole.append(top, body);
    return whole;
  }

  function forecast() {
    const counts = new Array(DAYS + 1).fill(0);
    known().forEach((one) => (counts[Math.min(Math.max(daysTo(record(one).due), 0), DAYS)] += 1));
    const rows = counts.map((count, position) => {
      const bar = made("span", "pb-bar");
      bar.style.width = `${(100 * count) / Math.max(...counts, 1)}%`;
      return [position < DAYS ? day(inDays(position, now())) : words.later, String(count), bar];
    });
    return table([words.day, words.questions, ""], rows);
  }

  // ——— How often right, by what the reader said before ———

  function calibration(tries) {
    const counts = [0, 1, 2].map((level) => {
      const those = tries.filter((one) => one.confidence === level);
      return [those.filter((one) => one.is_right).length, those.length];
    });
    const rows = counts.map(([n, m], level) => [
      words.levels[level],
      m ? say("right_of", { n, m }) : "–",
      m ? `${Math.round((100 * n) / m)}%` : "–",
    ]);
    const [[luck, guesses], , [right, sure]] = counts;
    const worth = sure < 5 ? "calibration_few" : right / sure < 0.8 ? "calibration_over" : "calibration_fits";
    const told = made("p", "", words[worth]);
    if (guesses > 4 && luck / guesses > 0.7) told.append(" ", words.calibration_under);
    return [table([words.you_were, words.were_right, words.share], rows.reverse()), told];
  }

  function sum(isEmptied) {
    const fill = (place, parts) => {
      place.textContent = "";
      place.append(...parts);
    };
    const tries = [].concat(...store.ids().map((id) => store.get(id).attempts));
    const first = tries.filter((one) => one.nth === 1 && Number.isInteger(one.confidence));
    if (isEmptied || known().length) fill(part("-forecast"), [forecast()]);
    if (isEmptied || first.length) fill(part("-calibration"), calibration(first));
    book.mark();
  }

  // ——— All answers as a file ———

  part("-export").addEventListener("click", () => {
    const items = {};
    store.ids().forEach((id) => (items[id] = store.get(id)));
    const text = JSON.stringify({ proofbook: 1, exported_at: new Date().toISOString(), items }, null, 1);
    const link = made("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "proofbook-answers.json";
    link.click();
    done.textContent = say("exported", { n: store.ids().length });
  });

  // Everything in a file is checked before anything of it is kept; of each item the newer stays.
  function take(text) {
    const found = JSON.parse(text);
    if (found.proofbook > 1) return words.import_newer;
    const ids = Object.keys(found.items);
    const isSound = (id) => store.isId(id) && store.isSound(found.items[id]);
    if (found.proofbook !== 1 || !ids.every(isSound)) return words.import_foreign;
    const last = (one) => one.attempts[one.attempts.length - 1].at;
    const newer = ids.filter((id) => !store.get(id) || last(store.get(id)) < last(found.items[id]));
    const kept = newer.filter((id) => store.put(id, found.items[id]));
    offer("");
    return say("imported", { n: newer.length }) + (kept.length < newer.length ? ` ${words.unkept}` : "");
  }

  part("-import").addEventListener("change", (event) => {
    const [file] = event.target.files;
    const reader = new FileReader();
    reader.addEventListener("loadend", () => {
      try {
        done.textContent = take(reader.result);
      } catch (error) {
        done.textContent = words.import_foreign;
      }
    });
    if (file && file.size > LARGEST) done.textContent = words.import_large;
    else if (file) reader.readAsText(file);
    event.target.value = "";
  });

  part("-delete").addEventListener("click", (event) => {
    const answered = (text) => () => {
      if (text === words.deleted) {
        store.clear();
        offer("");
        sum(true);
      }
      done.textContent = text;
      event.target.focus();
    };
    const yes = button(words.delete_yes, answered(words.deleted));
    done.textContent = say("delete_sure", { n: store.ids().length });
    done.append(" ", yes, " ", button(words.delete_no, answered(words.delete_kept)));
    yes.focus();
  });

  part("-controls").hidden = false;
  offer("");
})();
