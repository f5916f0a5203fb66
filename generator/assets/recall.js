// Recall: the questions that are due, one at a time; the coming days; how often the reader was right
// when sure; and all answers as a file, out and in again. quiz.js asks, and says when an answer is in.
(function () {
  "use strict";

  const book = window.proofbook;
  const { words, store, say, made, button, inDays } = book;
  const section = document.querySelector("[data-recall]");
  if (!section) return;
  const part = (name) => document.querySelector(`[data-recall-${name}]`);
  const said = part("said");
  const questions = book.questions.filter((one) => section.contains(one.form));
  const DAYS = 7;
  const TOO_LARGE = 5e6; // bytes of a file

  // ——— What is due ———

  const record = (question) => {
    const found = store.get(question.id);
    return found && found.done && found.digest === question.digest ? found : null;
  };
  const known = () => questions.filter(record).sort((a, b) => record(a).due - record(b).due);
  const due = () => known().filter((one) => record(one).due <= Date.now());
  const fresh = () => questions.filter((one) => !record(one));

  let queue = [];
  let at = 0;
  const actions = made("p", "pb-actions");
  said.after(actions);

  // Waiting, or at the end of a sitting: what is due now, what is new, when the next comes.
  function offer(lead) {
    questions.forEach((one) => (one.box.hidden = true));
    const now = due();
    const unasked = fresh();
    const rest = known().filter((one) => !now.includes(one));
    const next = rest.length ? " " + say("next_due", { when: when(record(rest[0]).due) }) : "";
    said.textContent = lead + (now.length ? say("now_due", { n: now.length }) : words.nothing_due + next);
    actions.textContent = "";
    if (now.length) actions.append(button(say("start_due", { n: now.length }), () => sit(now)));
    if (unasked.length)
      actions.append(" ", button(say("start_new", { n: unasked.length }), () => sit(unasked)));
    if (rest.length && !now.length)
      actions.append(" ", button(words.practise, () => sit(rest)));
    show();
  }

  function sit(chosen) {
    queue = chosen.slice();
    at = 0;
    ask();
  }

  function ask() {
    const question = queue[at];
    questions.forEach((one) => (one.box.hidden = one !== question));
    question.clear(false);
    actions.textContent = "";
    said.textContent = say("n_of_m", { n: at + 1, m: queue.length });
    question.box.tabIndex = -1;
    question.box.focus();
  }

  section.addEventListener("answered", (event) => {
    const question = event.detail;
    if (record(question).due <= Date.now()) queue.push(question);
    at += 1;
    const go = at < queue.length ? ask : () => offer(words.sitting_done + " ");
    actions.textContent = "";
    question.box.after(actions);
    actions.append(button(at < queue.length ? words.next : words.end_sitting, go));
    show();
  });

  // ——— The coming days ———

  function when(time) {
    const num = Math.round((inDays(0, time) - inDays(0, Date.now())) / 864e5);
    return num < 1 ? words.today : num === 1 ? words.tomorrow : say("in_days", { n: num });
  }

  function table(head, rows) {
    const made_ = made("table", "pb-table");
    const line = (cells, name) => {
      const row = document.createElement("tr");
      cells.forEach((cell, position) => {
        const one = made(position && name !== "th" ? "td" : "th", position ? "pb-number" : "");
        one.scope = name === "th" ? "col" : "row";
        one.append(cell);
        row.append(one);
      });
      return row;
    };
    const body = document.createElement("tbody");
    const top = document.createElement("thead");
    top.append(line(head, "th"));
    body.append(...rows.map((cells) => line(cells, "td")));
    made_.append(top, body);
    return made_;
  }

  function forecast() {
    const counts = new Array(DAYS + 1).fill(0);
    known().forEach((one) => {
      const days = Math.round((inDays(0, record(one).due) - inDays(0, Date.now())) / 864e5);
      counts[Math.min(Math.max(days, 0), DAYS)] += 1;
    });
    const most = Math.max(1, ...counts);
    const rows = counts.map((count, day) => {
      const bar = made("span", "pb-bar");
      bar.style.width = `${(100 * count) / most}%`;
      const cell = made("span", "pb-bars");
      cell.append(bar);
      const name = day < DAYS ? when(inDays(day, Date.now())) : words.later;
      return [name, cell, made("span", "pb-label", String(count))];
    });
    return table([words.day, "", words.questions], rows);
  }

  // ——— Calibration: how often right, by what the reader said before ———

  function calibration() {
    const tries = [].concat(...store.ids().map((id) => store.get(id).attempts));
    const first = tries.filter((one) => one.nth === 1 && one.confidence !== null);
    const rows = [2, 1, 0].map((level) => {
      const those = first.filter((one) => one.confidence === level);
      return { num: those.length, right: those.filter((one) => one.is_right).length };
    });
    const names = [words.sure, words.fairly, words.guess];
    const cells = rows.map(({ num, right }, level) => [
      names[level],
      made("span", "pb-label", num ? say("right_of", { n: right, m: num }) : "–"),
      made("span", "pb-label", num ? `${Math.round((100 * right) / num)}%` : "–"),
    ]);
    const [sure, , guess] = rows;
    const isFew = sure.num < 5;
    const share = sure.right / sure.num;
    const meaning = isFew ? "few" : share < 0.8 ? "over" : "fits";
    const told = made("p", "", words[`calibration_${meaning}`]);
    if (guess.num >= 5 && guess.right / guess.num > 0.7) told.append(" " + words.calibration_under);
    return [table([words.how_sure, words.were_right, words.share], cells), told];
  }

  function show() {
    const fill = (place, parts) => {
      place.textContent = "";
      place.append(...parts);
    };
    if (known().length) fill(part("forecast"), [forecast()]);
    const isAsked = store.ids().some((id) => store.get(id).attempts.some((one) => one.confidence !== null));
    if (isAsked) fill(part("calibration"), calibration());
    book.mark();
  }

  // ——— All answers as a file ———

  const done = part("done");

  function exported() {
    const items = {};
    store.ids().forEach((id) => (items[id] = store.get(id)));
    return { proofbook: 1, exported_at: new Date().toISOString(), items: items };
  }

  part("export").addEventListener("click", () => {
    const text = JSON.stringify(exported(), null, 1);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "proofbook-answers.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1e4);
    done.textContent = say("exported", { n: store.ids().length });
  });

  // Everything in a file is checked before anything of it is kept.
  function checked(text) {
    const found = JSON.parse(text);
    if (found.proofbook > 1) throw new Error("import_newer");
    if (found.proofbook !== 1) throw new Error("import_foreign");
    return Object.keys(found.items).map((id) => {
      const record = store.isId(id) && store.sound(found.items[id]);
      if (!record) throw new Error("import_foreign");
      return [id, record];
    });
  }

  const last = (record) => record.attempts[record.attempts.length - 1].at;

  function take(text) {
    let taken = 0;
    let isKept = true;
    checked(text).forEach(([id, record]) => {
      const own = store.get(id);
      if (own && last(own) >= last(record)) return;
      isKept = store.put(id, record) && isKept;
      taken += 1;
    });
    offer("");
    done.textContent = say("imported", { n: taken }) + (isKept ? "" : " " + words.unkept);
  }

  part("import").addEventListener("change", (event) => {
    const [file] = event.target.files;
    if (!file) return;
    const refuse = (name) => (done.textContent = words[name] || words.import_foreign);
    if (file.size > TOO_LARGE) return refuse("import_large");
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      try {
        take(reader.result);
      } catch (error) {
        refuse(error.message);
      }
      event.target.value = "";
    });
    reader.addEventListener("error", () => refuse("import_foreign"));
    reader.readAsText(file);
  });

  part("delete").addEventListener("click", (event) => {
    const opener = event.target;
    const close = (text) => {
      done.textContent = text;
      opener.focus();
    };
    done.textContent = say("delete_sure", { n: store.ids().length }) + " ";
    const yes = button(words.delete_yes, () => {
      store.clear();
      offer("");
      close(words.deleted);
    });
    done.append(yes, " ", button(words.delete_no, () => close(words.delete_kept)));
    yes.focus();
  });

  part("controls").hidden = false;
  offer("");
})();
