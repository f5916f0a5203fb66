// The search: adds up the scores that generator/website/search.py wrote into the parts of the index, and shows the
// best sections by page. It loads the parts that have the typed words, then those that have the sections.

const MOST_WORDS = 12; // the rarest of a text that somebody pastes
const MOST_SECTIONS = 12;
const PARTS = 0.9; // of a score where parts of a word are found, not the word
const BEGINS = 0.7; // the same where a longer word begins with it
const SHORTEST = 3; // letters with which a longer word is found
const BEFORE = 60; // letters of a text that are shown before the first word that was found
const SHOWN = 280;
const FRAME = /File "[^"]*", line \d+, in \S+/g; // of a traceback: where, but not what
const folder = new URL("../search/", document.currentScript.src).href;
const loaded = new Map();
const arrived = new Map();

// What each part of the index calls.
window.proofbookSearch = (name, content) => arrived.get(name)(content);

const load = (name) => {
  if (!loaded.has(name)) {
    loaded.set(name, new Promise((resolve) => {
      arrived.set(name, resolve);
      document.head.append(Object.assign(document.createElement("script"), { src: `${folder}${name}.js` }));
    }));
  }
  return loaded.get(name);
};

const rules = load("index").then((index) => ({
  ...index,
  word: new RegExp(index.word, "g"),
  within: new RegExp(index.within),
  number: new RegExp(index.number),
  endings: index.endings.map(([pattern, kept]) => [new RegExp(pattern), kept]),
}));

const stem = (word, { endings }) =>
  endings.reduce((cut, [pattern, kept]) => cut.replace(pattern, kept), word.toLowerCase());

// A word without its ending, joined, and its parts where it has several.
const read = (word, by) => {
  const parts = word.split(by.within).map((part) => stem(part, by));
  return { whole: stem(word.replace(/[-_.'’]/g, ""), by), parts: parts.length > 1 ? parts : [], isName: !word.includes("-") };
};

// The numbers of the parts in which words from `first` to `last` stand.
const within = (starts, first, last = first) => {
  const from = Math.max(0, starts.findLastIndex((start) => start <= first));
  return starts.slice(from).flatMap((start, number) => (number && start > last ? [] : [from + number]));
};

// By word, [weight, sections and scores, phrases]: of typed words, and of longer ones that begin with the last.
const lookUp = async (words, by) => {
  const numbers = new Set(words.flatMap((word) => within(by.words, word, word + (word.length < SHORTEST ? "" : "\uffff"))));
  const parts = await Promise.all([...numbers].map((number) => load(`words-${number}`)));
  return new Map(parts.flat().map(([word, ...of]) => [word, of]));
};

// Words that the index has as one are one: `all reduce` is all-reduce.
const joined = (typed, index) => {
  const words = [];
  for (let at = 0; at < typed.length; ) {
    const most = [3, 2].find((n) => {
      const some = typed.slice(at, at + n);
      return some.length === n && some.every(({ parts }) => !parts.length) && index.has(some.map(({ whole }) => whole).join(""));
    });
    const some = typed.slice(at, at + (most || 1));
    words.push(most ? { whole: some.map(({ whole }) => whole).join(""), parts: some.map(({ whole }) => whole), times: most } : some[0]);
    at += most || 1;
  }
  return words;
};

// Adds to a map the scores of a word, each times a factor, where they are higher.
const raise = (scores, of = [0, []], factor = 1) => {
  const pairs = of[1];
  for (let at = 0; at < pairs.length; at += 2)
    scores.set(pairs[at], Math.max(scores.get(pairs[at]) || 0, factor * pairs[at + 1]));
};

// The scores of a word: where it stands; where its parts stand, the less; or where longer words begin with it.
const weigh = ({ whole, parts, isName, times = 1 }, index) => {
  const scores = new Map();
  let of = [whole, ...parts].map((word) => index.get(word)).filter(Boolean);
  if (!of.length && whole.length >= SHORTEST) {
    of = [...index].filter(([word]) => word.startsWith(whole)).map(([, one]) => one);
    for (const one of of) raise(scores, one, BEGINS);
  }
  const weight = Math.max(0, ...of.map(([one]) => one));
  const sums = new Map();
  for (const [, pairs] of parts.map((part) => index.get(part)).filter(Boolean))
    for (let at = 0; at < pairs.length; at += 2)
      sums.set(pairs[at], (sums.get(pairs[at]) || 0) + pairs[at + 1] / parts.length);
  raise(scores, [0, [...sums].flat()], PARTS);
  const [, own] = index.get(whole) || [0, []];
  raise(scores, [0, parts.length && isName ? own.map((one, at) => one + (at % 2) * weight) : own]);
  return { weight: times * weight, scores: [...scores].map(([section, score]) => [section, times * score]) };
};

const rank = (typed, index) => {
  const words = joined(typed, index);
  const known = [...new Map(words.map((word) => [word.whole, word])).values()]
    .map((word) => weigh(word, index))
    .filter(({ scores }) => scores.length)
    .sort((one, other) => other.weight - one.weight)
    .slice(0, MOST_WORDS);
  const all = known.reduce((sum, { weight }) => sum + weight, 0);
  const total = new Map();
  const share = new Map();
  for (const { weight, scores } of known)
    for (const [section, score] of scores) {
      total.set(section, (total.get(section) || 0) + score);
      share.set(section, (share.get(section) || 0) + weight / all);
    }
  // A lead, and a term's name, all of whose words are typed.
  const gains = new Map();
  const said = new Set([...typed, ...words].map(({ whole }) => whole));
  for (const word of said)
    for (const [section, gain, others] of index.get(word)?.[2] || [])
      if (others.every((one) => said.has(one))) gains.set(section, Math.max(gains.get(section) || 0, gain));
  for (const [section, gain] of gains) total.set(section, (total.get(section) || 0) + gain);
  const score = ([section, sum]) => [section, sum * (share.get(section) || 0)];
  return [...total].map(score).sort((one, other) => other[1] - one[1] || one[0] - other[0]).slice(0, MOST_SECTIONS);
};

const escaped = (text) => text.replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt()};`);

// A text as HTML, in which words that were found are marked; a long one from before the first of them.
const marked = (text, isFound, by, most = Infinity) => {
  const places = [...text.matchAll(by.word)].filter(([word]) => isFound(read(word, by)));
  const first = places.length ? places[0].index : 0;
  const from = first < most - BEFORE ? 0 : text.indexOf(" ", first - BEFORE) + 1;
  const to = text.length - from <= most ? text.length : text.lastIndexOf(" ", from + most);
  let html = from ? "… " : "";
  let at = from;
  for (const { index, 0: word } of places.filter(({ index }) => index < to)) {
    html += `${escaped(text.slice(at, index))}<mark>${escaped(word)}</mark>`;
    at = index + word.length;
  }
  return html + escaped(text.slice(at, Math.max(at, to))) + (to < text.length ? " …" : "");
};

const below = (eyebrow, title) => (eyebrow ? `<span class="pb-eyebrow">${escaped(eyebrow)}</span><br>${title}` : title);

// What the theme shows: pages, each with its sections, the best first.
proofbookSearch.find = async (text) => {
  const by = await rules;
  const typed = (text.replace(FRAME, " ").match(by.word) || []).filter((word) => !by.number.test(word)).map((word) => read(word, by));
  const neighbours = typed.flatMap(({ whole }, at) => [2, 3].map((n) => typed.slice(at, at + n).map((one) => one.whole).join("")));
  const index = await lookUp([...new Set([...typed.flatMap(({ whole, parts }) => [whole, ...parts]), ...neighbours])], by);
  const ranked = rank(typed, index);
  const sought = new Set(typed.flatMap(({ whole, parts }) => [whole, ...parts]));
  const last = typed.at(-1)?.whole || "";
  const isFound = ({ whole, parts }) =>
    [whole, ...parts].some((word) => sought.has(word) || (last.length >= SHORTEST && word.startsWith(last)));
  const numbers = ranked.map(([section]) => within(by.sections, section)[0]);
  const parts = await Promise.all(numbers.map((number) => load(`sections-${number}`)));
  const pages = new Map();
  for (const [at, [section, score]] of ranked.entries()) {
    const [address, title, words, kind, page, place] = parts[at][section - by.sections[numbers[at]]];
    const [path, anchor] = address.split("#");
    if (!pages.has(path)) pages.set(path, [{ location: path, title: below(place, marked(page, isFound, by)), text: "", score: 0, terms: {} }]);
    const own = { score, terms: {}, text: marked(words, isFound, by, SHOWN) };
    if (anchor) pages.get(path).push({ ...own, location: address, title: below(kind, marked(title, isFound, by)) });
    else Object.assign(pages.get(path)[0], own);
  }
  return [...pages.values()].map((group) => group.sort((one, other) => other.score - one.score));
};
