// What the theme's search found, put in order once more. First comes a place that the typed words
// lead to by content/glossary.yml; after it, an entry that has the words side by side outranks one
// that has them apart. The results also say where a page belongs whose title does not. Loaded with
// the search, on the first focus of its field.
(function () {
  "use strict";

  const SETUP = 0; // the kinds of message that the theme and its worker send each other
  const QUERY = 2;
  const RESULT = 3;
  const SIDE_BY_SIDE = 3; // what a score grows by where every typed word stands so
  const entries = new Map();
  const leads = [];
  const alone = new Map();
  let between;
  let typed = "";

  const spelled = (text) => text.toLowerCase().match(/\w+/g) || [];
  const words = (text) => text.replace(/<[^>]*>/g, " ").split(between).filter(Boolean).join(" ").toLowerCase();

  const learn = ({ config, docs }) => {
    between = new RegExp(config.separator);
    for (const entry of docs) {
      entries.set(entry.location, { ...entry });
      for (const lead of entry.leads || []) leads.push([spelled(lead), entry.location]);
      for (const lead of entry.alone || []) alone.set(words(lead), entry.location);
    }
    leads.sort(([one], [other]) => one.length - other.length); // the longest comes to stand first
  };

  // The words of an entry as one text; made when they are first asked for.
  const said = (location) => {
    const entry = entries.get(location);
    entry.said = entry.said || ` ${words(entry.title)} | ${words(entry.text)} `;
    return entry.said;
  };

  // The share of the typed pairs of words that stand side by side; the last word may be unfinished.
  const together = (location) => {
    const all = words(typed).split(" ");
    const pairs = all.slice(1).map((word, index) => ` ${all[index]} ${word}`);
    return pairs.length && pairs.filter((pair) => said(location).includes(pair)).length / pairs.length;
  };

  const byScore = (one, other) => other.score - one.score;

  // The theme lists the typed words that a result lacks; those that lead to it are not among them.
  const lead = (items, location, answered) => {
    const [page] = location.split("#");
    let group = items.find((one) => one.some((found) => found.location.split("#")[0] === page));
    if (!group) items.push((group = [{ ...entries.get(page), score: 0, terms: {} }]));
    let led = group.find((found) => found.location === location);
    if (!led) group.push((led = { ...entries.get(location), terms: {} }));
    led.terms = Object.fromEntries(Object.entries(led.terms).filter(([word]) => !answered.has(word)));
    led.score = 1 + Math.max(...items.flat().map((found) => found.score || 0));
  };

  const arrange = ({ items }) => {
    for (const found of items.flat()) found.score *= 1 + SIDE_BY_SIDE * together(found.location);
    const all = new Set(spelled(typed));
    for (const [needed, location] of leads) {
      if (needed.every((word) => all.has(word))) lead(items, location, new Set(needed));
    }
    const whole = alone.get(words(typed));
    if (whole) lead(items, whole, all);
    for (const found of items.flat()) {
      if (found.place) found.title = `<span class="pb-eyebrow">${found.place}</span><br>${found.title}`;
    }
    for (const group of items) group.sort(byScore);
    items.sort(([one], [other]) => byScore(one, other));
  };

  // From disk, browsers refuse workers to pages; there the worker's script runs in a frame.
  class Frame extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, title: "search" });
      const src = new URL(url, location.href).href;
      frame.srcdoc = `<script>var postMessage = (data) => parent.postMessage(data, "*")</script><script src="${src}"></script>`;
      this.loaded = new Promise((resolve) => (frame.onload = () => resolve(frame.contentWindow)));
      document.body.append(frame);
      window.addEventListener("message", ({ source, data }) => {
        if (source === frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    postMessage(data) {
      this.loaded.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  }

  // Makes the theme's worker; `tell` gets its messages, and what comes back takes those to it.
  window.proofbookSearch = (Native, url, tell) => {
    const worker = new (location.protocol === "file:" ? Frame : Native)(url);
    worker.addEventListener("message", ({ data: message }) => {
      if (message.type === RESULT) arrange(message.data);
      tell(message);
    });
    return (message) => {
      if (message.type === SETUP) learn(message.data);
      if (message.type === QUERY) typed = message.data;
      worker.postMessage(message);
    };
  };
})();
