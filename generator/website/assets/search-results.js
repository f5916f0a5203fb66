// What the theme's search found, put in order by a score of its own: rare words count more than usual
// ones, headings more than text, and an entry that has all typed words, side by side, most. Before it
// come a term of the glossary that somebody types, and a place that the typed words lead to by
// content/glossary.yml. The results also say where a page belongs whose title does not. Loaded with the
// search, on the first focus of its field.
(function () {
  "use strict";

  const SETUP = 0; // the kinds of message that the theme and its worker send each other
  const QUERY = 2;
  const RESULT = 3;
  const WEIGHT = { title: 5, title_synonyms: 1, text: 0.3, text_synonyms: 0.5, above: 1.2, heard: 0.6, led: 2 };
  const RARE = 4; // rarer words than those of so many entries count alike
  const ROUNDED = 1000; // the theme keeps two digits behind the point
  const UNKNOWN = 0.6; // what remains of how rare a word is that no heading has: it is not of the field
  const MOST = 0.2; // entries with less of the typed words than this share of the most are not read
  const LED = 0.3; // the share of the typed words, by how rare they are, that a lead has to be to come first,
  const ENOUGH_LED = 5; // or the sum of how rare its words are, as in a long message
  const LEAD = 2; // what a score grows by where a whole lead was typed
  const ENOUGH = 1.8; // weight of a word at which half is said
  const LENGTH = 400; // letters of a usual text
  const SHORTER = 0.7; // how much a long text counts less
  const SHORT_TITLE = 0.15; // how much a long heading counts less
  const COMMON = 0.25; // a heading that several pages have
  const OUTSIDE = 0.6; // and what remains of the score there, because such sections ask or sum up
  const COVER = 2; // the power of the share of the typed words that an entry has
  const TITLE = 0.7; // what a score grows by where the whole heading was typed
  const SIDE_BY_SIDE = 2.5; // and where every typed word stands so
  const STATEMENT = 0.3; // what remains of it where a title is a statement that the book tests
  const FIGURE = 0.7; // a figure is shown with its section
  const PAGE = 0.4; // sections are nearer to an answer
  const DEFINES = /^\s*(what|define|explain)\b|\b(definition|meaning|mean)\b/i;
  const ENDING =
    /(?<=ch|sh|ss|x)es$|(?<=\w\w[^\Ws])s$|(?<=\w{5})(ing|ed|ers?|ations?|isms?)$|(?<=\w{4})i[sz](e[drs]?|ers|ing|ations?)$|(?<=^differ)en\w+$/;
  const entries = new Map();
  const terms = [];
  const leads = [];
  const alone = new Map();
  const known = new Set(); // words of headings
  const common = new Set(); // headings of several pages
  let between;
  let typed = "";

  // A word without its ending: `averaged` finds `average`, and `optimiser` finds `optimizer`.
  const stem = (word) => {
    const cut = word.replace(ENDING, "");
    return (cut === word ? word : cut.replace(/([bdgmnprt])\1$/, "$1")).replace(/(?<=\w{5})e$/, "");
  };
  const stems = (text) => (text.toLowerCase().match(/\w+/g) || []).map(stem);
  const words = (text) => text.replace(/<[^>]*>/g, " ").split(between).filter(Boolean);
  const plain = (text) => words(text).map((word) => stem(word.toLowerCase())).join(" ");

  // As names of terms are compared: `what does all_reduce mean` asks for the all-reduce.
  const bare = (text) => plain(text.replaceAll("_", " ")).replace(/ mean$/, "");

  // What has to be typed of a lead: its little words count where only one other remains.
  const needed = (lead) => {
    const all = plain(lead).split(" ");
    return stems(lead).filter((word) => all.length < 2 || all.includes(word) || /^(\d|not$|per$)/.test(word));
  };

  const learn = ({ config, docs }) => {
    between = new RegExp(config.separator);
    const titles = new Map();
    for (const entry of docs) {
      entries.set(entry.location, { ...entry });
      for (const lead of entry.leads || []) leads.push([needed(lead), entry.location]);
      for (const lead of entry.alone || []) alone.set(plain(lead), entry.location);
      for (const word of plain(`${entry.title} ${entry.title_synonyms || ""}`).split(" ")) known.add(word);
      titles.set(entry.title, (titles.get(entry.title) || 0) + 1);
      if (titles.get(entry.title) > 2) common.add(entry.title);
      if (!entry.names) continue;
      const others = (entry.title_synonyms || "").split(", ").map(bare).filter(Boolean);
      terms.push([entry.names.map(bare), others, entry.location]);
    }
    leads.sort(([one], [other]) => one.length - other.length); // the longest comes to stand first
  };

  // What the worker is asked for, word by word: each way in which a word may be written. In most
  // searches, GPU says no more than rank or device, and RuntimeError nothing; ZeRO has numbered stages.
  const asked = () => {
    const said = typed.replace(/\b(Runtime|Value|Type)Error\b:?(?=.*\w)/g, "");
    const text = plain(said.replace(/\bzero[\s-]*(?:stage\s*)?(?=[123]\b)/gi, "ZeRO-"));
    const all = text.replace(/\bgpu (?=.)|(?<=.) gpu\b/g, "").split(" ").filter(Boolean);
    const ways = all.map((word) => [[word], ...cuts(word)]);
    all.slice(1).forEach((word, index) => {
      if (known.has(all[index] + word)) for (const at of [index, index + 1]) ways[at].push([all[index] + word]);
    });
    return ways;
  };

  // A word that no heading has, as two words that headings have: `multinode`, `batchnorm`.
  const cuts = (word) =>
    known.has(word)
      ? []
      : Array.from(word.slice(2, -2), (_, at) => [word.slice(0, at + 2), word.slice(at + 2)])
          .map((two) => two.map(stem))
          .filter((two) => two.every((half) => half.length > 1 && known.has(half)));

  // The weight of each word of an entry, by where it stands; added up when it is first asked for.
  const read = (location) => {
    const entry = entries.get(location);
    if (entry.weights) return entry;
    entry.weights = new Map();
    entry.heading = plain(entry.title).split(" ");
    const heading = common.has(entry.title) ? COMMON : 1;
    const short = 1 - SHORT_TITLE + (SHORT_TITLE * entry.heading.length) / 4;
    const long = 1 - SHORTER + SHORTER * Math.min(4, entry.text.length / LENGTH);
    const times = { title: heading / short, title_synonyms: heading, text: 1 / long, text_synonyms: 1 / long };
    for (const name in WEIGHT) {
      const all = plain(entry[name] || "").split(" ");
      const weight = WEIGHT[name] * (times[name] || 1);
      for (const word of name === "text" ? all : new Set(all)) {
        entry.weights.set(word, (entry.weights.get(word) || 0) + weight);
      }
    }
    entry.paths = (entry.leads || []).map((lead) => plain(lead).split(" "));
    entry.said = ` ${[entry.title, entry.text, ...(entry.title_synonyms || "").split(",")].map(plain).join(" | ")} `;
    return entry;
  };

  // How much an entry says of a word, between nothing and one.
  const saying = (entry, word) => {
    const weight = entry.weights.get(word) || 0;
    return weight / (ENOUGH + weight);
  };

  const share = (all, are) => (all.length ? all.filter(are).length / all.length : 0);

  // How well an entry answers: by how rare the words are that it says and how much it says of them,
  // by the share of the typed words that it has and of its heading that was typed, more where typed
  // words stand side by side, and by the kind of page.
  const score = (found, ways, rarity) => {
    const entry = read(found.location);
    let [had, all, worth] = [0, 0, 0];
    ways.forEach((way, index) => {
      const said = Math.max(...way.map((them) => Math.min(...them.map((word) => saying(entry, word)))));
      worth += rarity[index] * said;
      had += rarity[index] * Math.min(1, 3 * said);
      all += rarity[index];
    });
    const typedWords = ways.map(([[word]]) => word);
    const pairs = typedWords.slice(1).map((word, index) => ` ${typedWords[index]} ${word} `);
    const together = share(pairs, (pair) => entry.said.includes(pair));
    const any = new Set(ways.flat(2));
    const titled = common.has(entry.title) ? 0 : share(entry.heading, (word) => any.has(word));
    const led = Math.max(0, ...entry.paths.map((lead) => share(lead, (word) => any.has(word)) ** 2));
    const isPage = !entry.location.includes("#") && entry.text;
    const kind =
      (entry.title.startsWith("\u201c") ? STATEMENT : 1) *
      (entry.location.includes("#figure-") ? FIGURE : 1) *
      (isPage ? PAGE : 1) *
      (common.has(entry.title) ? OUTSIDE : 1);
    const fit = (1 + SIDE_BY_SIDE * together) * (1 + TITLE * titled + LEAD * led);
    return ROUNDED * worth * (had / all) ** COVER * fit * kind * entry.boost;
  };

  // How much the rareness of a word tells; nothing tells less than a word that no page has.
  const rare = (times) => (times ? Math.log(1 + entries.size / (times + RARE)) : 1);

  const byScore = (one, other) => other.score - one.score;
  const best = (items) => items.flat().reduce((one, other) => (other.score > one.score ? other : one), { score: 0 });

  // The theme lists the typed words that a result lacks; those that lead to it are not among them.
  const lead = (items, location, isAnswer) => {
    const [page] = location.split("#");
    const highest = best(items).score || 1;
    let group = items.find((one) => one.some((found) => found.location.split("#")[0] === page));
    if (!group) items.push((group = [{ ...entries.get(page), score: 0, terms: {} }]));
    let led = group.find((found) => found.location === location);
    if (!led) group.push((led = { ...entries.get(location), terms: {} }));
    led.terms = Object.fromEntries(Object.entries(led.terms).filter(([word]) => !isAnswer(word)));
    led.score = 2 * highest;
  };

  // A term comes first where somebody asks what it is, and else second to a place that the words lead
  // to or to a lesson whose heading begins with it.
  const define = (items, isLed) => {
    const asked = bare(typed);
    const [names, others, location] =
      terms.find((term) => term[0].includes(asked)) || terms.find((term) => term[1].includes(asked)) || [];
    if (!names) return;
    const begins = [...names, ...others].map((name) => `${name} `);
    const headings = items.flat().filter((found) => {
      const heading = `${stems(entries.get(found.location).title).join(" ").replace(/^(the|an?) /, "")} `;
      found.isWhole = begins.includes(heading);
      return !/^glossary|#(figure|stage)-/.test(found.location) && begins.some((name) => heading.startsWith(name));
    });
    const whole = headings.map((found) => ({ ...found, score: found.score * (1 + found.isWhole) }));
    const first = best(isLed ? items : whole);
    lead(items, location, () => true);
    const lesson = items.flat().find((found) => found.location === first.location);
    if (lesson && !DEFINES.test(typed)) lesson.score = 2 * best(items).score;
  };

  const has = (way, isThere) => way.some((them) => them.every(isThere));
  const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);

  const arrange = ({ items }) => {
    const ways = asked();
    const every = items.flat();
    const having = ways.map((way) => every.map(({ terms }) => has(way, (word) => terms[word])));
    const rarity = ways.map((way, at) => {
      const ofField = way.flat().some((word) => known.has(word));
      return rare(having[at].filter(Boolean).length) * (ofField ? 1 : UNKNOWN);
    });
    const sums = every.map((_, at) => sum(rarity.map((one, word) => one * having[word][at])));
    const least = MOST * Math.max(...sums);
    every.forEach((found, at) => {
      found.score = sums[at] < least ? sums[at] / 1e6 : score(found, ways, rarity);
    });
    const all = new Set([...stems(typed), ...ways.flat(2)]);
    const covered = (words) => sum(rarity.map((one, at) => one * has(ways[at], (word) => words.includes(word))));
    const enough = Math.min(LED * sum(rarity), ENOUGH_LED);
    const led = leads.filter(([words]) => words.every((word) => all.has(word)) && covered(words) >= enough);
    for (const [words, location] of led) lead(items, location, (word) => words.includes(word));
    const whole = alone.get(plain(typed));
    if (whole) lead(items, whole, () => true);
    define(items, whole || led.length);
    const spellings = new Map(words(typed).map((word) => [plain(word), word]));
    for (const found of items.flat()) {
      found.terms = Object.fromEntries(
        Object.entries(found.terms).map(([word, isThere]) => [spellings.get(word) || word, isThere]),
      );
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
      worker.postMessage(message.type === QUERY ? { ...message, data: asked().flat(2).join(" ") } : message);
    };
  };
})();
