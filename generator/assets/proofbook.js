// What all pages share: the answers that this browser keeps, the marks beside links, and paper, on
// which everything is open. Before it stands `window.proofbook = {words: …}`; nothing is ever sent.
(function () {
  "use strict";

  const book = (window.proofbook = window.proofbook || { words: {} });
  const PREFIX = "proofbook:item:";
  const ID = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
  const DAY = 864e5;
  const unkept = new Map(); // what storage refused, for the life of this page

  const isWhole = (thing, low, high) => Number.isInteger(thing) && thing >= low && thing <= high;
  const isAnswer = (thing) =>
    thing === null ||
    Number.isFinite(thing) ||
    (typeof thing === "string" && thing.length <= 100) ||
    (Array.isArray(thing) && thing.length <= 20 && thing.every((one) => isWhole(one, 0, 99)));
  const isTime = (thing) => isWhole(thing, 0, Date.now() + 999 * DAY);

  function attempt(one) {
    if (!isWhole(one.at, 0, Date.now() + DAY) || !isAnswer(one.answer)) return null;
    const isSure = isWhole(one.confidence, 0, 2);
    return {
      at: one.at,
      answer: one.answer,
      is_right: one.is_right === true,
      confidence: isSure ? one.confidence : null,
      gave_up: one.gave_up === true,
      nth: one.nth === 2 ? 2 : 1,
    };
  }

  // A record as this script writes it, made anew from whatever was found; null if it is none.
  function sound(found) {
    try {
      const attempts = found.attempts.map(attempt);
      const isKept =
        /^[0-9a-f]{1,64}$/.test(found.digest) && isWhole(attempts.length, 1, 99) && attempts.every(Boolean);
      return isKept
        ? {
            digest: String(found.digest),
            attempts: attempts,
            done: found.done === true,
            due: isTime(found.due) ? found.due : 0,
            step: isWhole(found.step, 0, 9) ? found.step : 0,
            again: found.again === true,
          }
        : null;
    } catch (error) {
      return null;
    }
  }

  // Storage may be full, forbidden, or hold what others wrote: then nothing is kept or found.
  const store = {
    isId: (id) => id.length < 100 && ID.test(id),
    sound: sound,
    get: function (id) {
      if (unkept.has(id)) return unkept.get(id);
      try {
        return sound(JSON.parse(localStorage.getItem(PREFIX + id)));
      } catch (error) {
        return null;
      }
    },
    put: function (id, record) {
      try {
        localStorage.setItem(PREFIX + id, JSON.stringify(record));
        unkept.delete(id);
        return true;
      } catch (error) {
        unkept.set(id, record);
        return false;
      }
    },
    ids: function () {
      const found = new Set(unkept.keys());
      try {
        Object.keys(localStorage).forEach((key) => {
          const id = key.slice(PREFIX.length);
          if (key.startsWith(PREFIX) && store.isId(id) && store.get(id)) found.add(id);
        });
      } catch (error) {
        /* forbidden: what this page holds is all there is */
      }
      return Array.from(found).sort();
    },
    clear: function () {
      store.ids().forEach((id) => {
        unkept.delete(id);
        try {
          localStorage.removeItem(PREFIX + id);
        } catch (error) {
          /* forbidden: there is nothing to remove */
        }
      });
    },
  };

  // Interface words with their {slots} filled.
  function say(name, values) {
    return String(book.words[name]).replace(/\{(\w+)\}/g, (slot, key) => values[key]);
  }

  // `data-items="id:digest …"`: how many of them are answered, as they read now, and how many due.
  function mark() {
    document.querySelectorAll(".pb-progress").forEach((place) => {
      const holder = place.closest("[data-items]");
      const items = holder ? holder.dataset.items.split(" ").filter(Boolean) : [];
      const records = items.map((item) => {
        const [id, digest] = item.split(":");
        const record = store.get(id);
        return record && record.done && record.digest === digest ? record : null;
      });
      const done = records.filter(Boolean);
      const due = done.filter((record) => record.due <= Date.now()).length;
      const isAll = done.length > 0 && done.length === items.length;
      const isRow = Boolean(place.closest(".pb-modes"));
      const values = { n: done.length, m: items.length, due: due };
      place.textContent = "";
      if (isAll) place.append(" ✓", hidden(" " + book.words.all_answered));
      else if (done.length && !isRow) place.append(say("answered", values));
      if (due && !isRow) place.append(say("due", values));
    });
  }

  function hidden(text) {
    const made = document.createElement("span");
    made.className = "pb-hidden";
    made.textContent = text;
    return made;
  }

  // On paper everything is open, also what waits for an answer.
  const SHUT =
    ".pb-answer[hidden]:not([data-told]), .pb-hint[hidden], .pb-question[hidden], [data-after][hidden]";
  let opened = [];
  let shown = [];
  window.addEventListener("beforeprint", () => {
    shown = Array.from(document.querySelectorAll(SHUT));
    shown.forEach((one) => (one.hidden = false));
    opened = Array.from(document.querySelectorAll(".md-content details:not([open])"));
    opened.forEach((one) => (one.open = true));
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((one) => (one.open = false));
    shown.forEach((one) => (one.hidden = true));
  });

  Object.assign(book, { store: store, say: say, mark: mark, hidden: hidden });
  window.addEventListener("storage", mark);
  window.addEventListener("pageshow", mark);
  mark();
})();
