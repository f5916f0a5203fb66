// What all pages share: the answers that this browser keeps, and the marks beside links. Before it
// stands `window.proofbook = {words: …}`; nothing is ever sent.
(function () {
  "use strict";

  const book = window.proofbook;
  const PREFIX = "proofbook:item:";
  const A_SITTING = 4 * 36e5; // milliseconds
  const LATEST = 1e13; // a time in the year 2286: a clock may be wrong, and its answers are kept
  const all = (within, selector) => [...within.querySelectorAll(selector)];
  const unkept = new Map(); // what storage refused, for the life of this page

  const isWhole = (thing, high) => Number.isInteger(thing) && thing >= 0 && thing <= high;
  const isAnswer = (thing) =>
    thing === null ||
    Number.isFinite(thing) ||
    (typeof thing === "string" && thing.length < 101) ||
    (Array.isArray(thing) && thing.length < 21 && thing.every((one) => isWhole(one, 99)));

  const isAttempt = (one) =>
    isWhole(one.at, LATEST) &&
    isAnswer(one.answer) &&
    typeof one.is_right === "boolean" &&
    typeof one.gave_up === "boolean" &&
    (one.confidence === null || isWhole(one.confidence, 2)) &&
    (one.variant === undefined || isWhole(one.variant, 99));

  // What is remembered, as schedule.js estimates it; nothing before the first answer is done.
  const isMemory = ({ stability, difficulty, reviewed }) =>
    stability === undefined ||
    (Number.isFinite(stability) && stability > 0 && difficulty >= 1 && difficulty <= 10 && isWhole(reviewed, LATEST));

  // Storage may be forbidden, full, or hold what others wrote.
  function tried(act, otherwise) {
    try {
      return act();
    } catch (error) {
      return otherwise;
    }
  }

  const store = {
    isId: (id) => id.length < 100 && /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(id),
    // Whether this is a record as quiz.js writes it: of a digest of the item, with its attempts.
    isSound: (record) =>
      tried(
        () =>
          /^[0-9a-f]{1,64}$/.test(record.digest) &&
          isWhole(record.due, LATEST) &&
          isMemory(record) &&
          isWhole(record.attempts.length - 1, 98) &&
          record.attempts.every(isAttempt),
        false
      ),
    get: (id) => {
      const found = tried(() => JSON.parse(localStorage.getItem(PREFIX + id)), null);
      // Most have none: asking `isSound` of nothing throws, and a hundred times that is felt.
      return unkept.get(id) || (found && store.isSound(found) ? found : null);
    },
    // The record of an item, if it answers the question of one of these digests.
    of: (id, digests) => {
      const found = store.get(id);
      return found && digests.includes(found.digest) ? found : null;
    },
    put: (id, record) => {
      unkept.set(id, record);
      const isRefused = tried(() => localStorage.setItem(PREFIX + id, JSON.stringify(record)), true);
      return !isRefused && unkept.delete(id);
    },
    ids: () => {
      const kept = tried(() => Object.keys(localStorage), [])
        .filter((key) => key.startsWith(PREFIX))
        .map((key) => key.slice(PREFIX.length));
      return [...new Set([...kept, ...unkept.keys()])].filter((id) => store.isId(id) && store.get(id));
    },
    remove: (id) => {
      unkept.delete(id);
      tried(() => localStorage.removeItem(PREFIX + id));
    },
    clear: () => {
      store.ids().forEach(store.remove);
      store.set("later", {});
    },
    // What a reader chose, by name: kept like answers, or for the life of this page.
    chosen: (name) => unkept.get(`:${name}`) || tried(() => JSON.parse(localStorage.getItem(`proofbook:${name}`)), null),
    set: (name, value) => {
      unkept.set(`:${name}`, value);
      tried(() => {
        localStorage.setItem(`proofbook:${name}`, JSON.stringify(value));
        unkept.delete(`:${name}`);
      });
    },
    // The questions that a reader put off, each with the time until which.
    isLater: (found) => tried(() => Object.keys(found).every((id) => store.isId(id) && isWhole(found[id], store.NEVER)), false),
    later: () => {
      const found = store.chosen("later");
      return found && store.isLater(found) ? found : {};
    },
    NEVER: 864e13, // the last moment of a calendar
  };

  function made(name, css, text) {
    const element = document.createElement(name);
    if (css) element.className = css;
    if (text) element.textContent = text;
    return element;
  }

  // Interface words with their {slots} filled.
  const say = (name, values) => book.words[name].replace(/\{(\w+)\}/g, (slot, key) => values[key]);

  // `data-items="id:digest …"`: how many of these questions are answered
  // and how many rightly; how many are due, of those that come back (the others begin with `!`).
  function mark() {
    all(document, ".pb-progress").forEach((place) => {
      const holder = place.closest("[data-items]");
      const items = holder.dataset.items.split(" ").map((item) => item.split(":"));
      const records = items.map(([id, ...digests]) => store.of(id.replace("!", ""), digests));
      const done = records.filter((record) => record?.done);
      const isDue = (record, position) =>
        record && items[position][0][0] !== "!" && isDueNow(items[position][0], record);
      // A prediction is not graded; one that was given up is none.
      const graded = done.filter((record) => record.kind !== "predict");
      const counts = {
        n: done.filter((record) => graded.includes(record) || last(record).answer !== null).length,
        m: items.length,
        due: records.filter(isDue).length,
        right: graded.filter((record) => last(record).is_right).length,
        graded: graded.length,
      };
      const isRecall = /\/recall$/.test(holder.dataset.page);
      holder.dataset.due = counts.due;
      const isAll = counts.n === counts.m && !isRecall;
      place.textContent = "";
      if (isAll && counts.right === counts.graded) place.append(" ✓", made("span", "pb-hidden", book.words.all_answered));
      else if (isAll) place.append(" ", say("all_right", counts));
      else if (counts.n && !holder.dataset.page) place.append(say("answered", counts));
      const mark = place.hasChildNodes() ? ", " : " ";
      if (counts.due && (isRecall || !holder.dataset.page)) place.append(mark, say("due", counts));
    });
    book.queue?.();
  }

  // When a question comes back; what is years ahead was written under a clock that was wrong.
  const dueOf = ({ due }) => (due > Date.now() + 999 * 864e5 ? 0 : due);
  const comesBack = (id, record) => Math.max(dueOf(record), store.later()[id] || 0);
  // A wrong try that a reader left, too, once its sitting is over.
  const isDueNow = (id, record) =>
    (record.done || Date.now() - record.attempts.at(-1).at > A_SITTING) && comesBack(id, record) <= Date.now();

  // The last answer; a try that another one has to follow is none yet.
  const last = ({ attempts }) => attempts.filter((one) => !one.unfinished).pop() || attempts[0];

  Object.assign(book, { A_SITTING, store, say, mark, made, all, dueOf, comesBack, isDueNow });
  window.addEventListener("storage", mark);
  window.addEventListener("pageshow", mark);
  mark();
})();
