// What all pages share: the answers that this browser keeps, and the marks beside links; nothing is
// ever sent.

const { all, made } = book;
const ITEM = "proofbook:item:";
const A_SITTING = 4 * 36e5; // milliseconds
const unkept = new Map(); // what storage refused, for the life of this page

// Storage may be forbidden, full, or hold what others wrote.
function tried(act, otherwise) {
  try {
    return act();
  } catch {
    return otherwise;
  }
}

const read = (key) => unkept.get(key) || tried(() => JSON.parse(localStorage.getItem(key)), null);

// Whether the browser keeps it.
function write(key, value) {
  unkept.set(key, value);
  return tried(() => {
    localStorage.setItem(key, JSON.stringify(value));
    return unkept.delete(key);
  }, false);
}

const store = {
  // Whether this is the record of an item, as question.js writes it.
  isSound: (record) => record?.attempts?.length > 0 && record.attempts.every((one) => one?.at > 0),
  get: (id) => {
    const found = read(ITEM + id);
    return store.isSound(found) ? found : null;
  },
  // The record of an item, if it answers the question of one of these digests, which links cut short.
  of: (id, digests) => {
    const found = store.get(id);
    return digests.some((one) => String(found?.digest).startsWith(one)) ? found : null;
  },
  put: (id, record) => write(ITEM + id, record),
  ids: () => {
    const keys = new Set([...tried(() => Object.keys(localStorage), []), ...unkept.keys()]);
    const ids = [...keys].filter((key) => key.startsWith(ITEM)).map((key) => key.slice(ITEM.length));
    return ids.filter(store.get);
  },
  clear: () => {
    store.ids().forEach((id) => {
      unkept.delete(ITEM + id);
      tried(() => localStorage.removeItem(ITEM + id));
    });
    ["pages", "last"].forEach((name) => store.set(name, null));
  },
  // What a reader chose, by name.
  chosen: (name) => read(`proofbook:${name}`),
  set: (name, value) => write(`proofbook:${name}`, value),
};

// Interface words with their {slots} filled.
const say = (name, values) => book.words[name].replace(/\{(\w+)\}/g, (slot, key) => values[key]);

// `data-items="id:digest …"`: how many of these questions are answered
// and how many rightly; how many are due, of those that come back (the others begin with `!`).
// A page without questions is done when its end was seen.
function counted({ items, page }) {
  const asked = items.split(" ").filter(Boolean);
  const records = asked.map((item) => {
    const [id, ...digests] = item.split(":");
    return store.of(id.replace("!", ""), digests);
  });
  const isDue = (item, at) => records[at] && item[0] !== "!" && isDueNow(records[at]);
  const done = records.filter((record) => record?.done);
  // A prediction is not graded; one that was given up is none. question.js keeps as a prediction
  // all that is not graded.
  const graded = done.filter((record) => record.kind !== "predict");
  const n = done.filter((record) => graded.includes(record) || last(record).answer !== null).length;
  const isRecall = /\/recall$/.test(page);
  return {
    n,
    m: asked.length,
    due: asked.filter(isDue).length,
    right: graded.filter((record) => last(record).is_right).length,
    graded: graded.length,
    isRecall,
    isDone: !isRecall && (asked.length ? done.length === asked.length : seen()[page] === END),
  };
}

const rail = document.querySelector(".pb-rail[data-items]");

// What stands beside a link. A lesson in its topic counts only on a page that the reader has opened.
function mark() {
  all(document, "[data-items]").forEach((link) => {
    const { page } = link.dataset;
    const counts = counted(link.dataset);
    const { isDone, isRecall, right, graded, n, m, due } = counts;
    const at = link === rail ? link.querySelector("[aria-current=page]:not([data-items])") : link;
    const place = at?.querySelector(".pb-progress");
    if (!place) return;
    const isTab = page && place.closest(".pb-lessons");
    place.textContent = "";
    if (isTab && !seen()[page]) return;
    const isBegun = !isDone && !isRecall && !link.closest(".pb-rail");
    if (isDone) place.append(" ✓");
    if (isDone && right === graded && n === m) place.append(made("span", "pb-hidden", book.words.all_answered));
    else if (isDone && graded) place.append(isTab ? `${right}/${graded}` : ` ${say("all_right", counts)}`);
    else if (isBegun && n) place.append(` ${say("answered", counts)}`);
    else if (isBegun && seen()[page]) place.append(` ${book.words.opened}`);
    if (due && (isRecall || !page)) place.append(place.hasChildNodes() ? ", " : " ", say("due", counts));
  });
  const tally = document.querySelector(".pb-tally");
  const steps = all(document, ".pb-hour > li").map(({ dataset }) => counted(dataset).isDone);
  if (steps.some(Boolean)) tally.textContent = ` · ${say("steps_done", { n: steps.filter(Boolean).length, m: steps.length })}`;
}

// Where home's *Continue* leads: this page, or the next one when it is done. Who answered nothing here, and has more
// to do, looked something up. Not in `mark`, which other windows call when this one writes.
function remember() {
  const { n, isDone } = counted(rail.dataset);
  const next = isDone && rail.querySelector("[rel=next]");
  if (n || next)
    store.set("last", {
      href: (next || location).href,
      way: rail.dataset.way,
      title: (next || document.querySelector("h1")).textContent.replace("Next: ", ""),
    });
}

// The pages that a reader has opened, or has seen to their end.
const END = 2;
const seen = () => store.chosen("pages") || {};
const here = rail?.dataset.page;
const see = (how) => here && !(seen()[here] >= how) && store.set("pages", { ...seen(), [here]: how });

// A wrong try that a reader left is due, too, once its sitting is over.
const isDueNow = (record) =>
  (record.done || Date.now() - record.attempts.at(-1).at > A_SITTING) && record.due <= Date.now();

// The last answer; a try that another one has to follow is none yet.
const last = ({ attempts }) => attempts.filter((one) => !one.unfinished).pop() || attempts[0];

Object.assign(book, { A_SITTING, store, say, counted, mark, isDueNow });
addEventListener("storage", mark);
addEventListener("pageshow", mark);
see(1);
mark();
if (rail) {
  remember();
  addEventListener("pagehide", remember);
}
const topic = document.querySelector(".pb-rail details");
const close = ({ key, target }) => (key === "Escape" || !(key || topic.contains(target))) && (topic.open = false);
if (topic) ["click", "keydown"].forEach((event) => document.addEventListener(event, close));
const end = document.querySelector(".pb-onward");
if (end) {
  new IntersectionObserver((shown) => shown.some((one) => one.isIntersecting) && (see(END), mark())).observe(end);
}
