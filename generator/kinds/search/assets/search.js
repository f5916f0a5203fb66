// The search: adds up the scores that index.py wrote into the parts of its index, and gives the
// theme the best sections by page. It loads the parts that have the typed words, then those that have the sections.

const MOST_WORDS = 12; // the rarest of a text that somebody pastes
const MOST_SECTIONS = 12;
const PARTS = 0.9; // of a score where parts of a word are found, not the word
const BEGINS = 0.7; // the same where a longer word begins with it
const SHORTEST = 3; // letters with which a longer word is found
const BEFORE = 60; // letters of a text that are shown before the first word that was found
const SHOWN = 260;
const SHORTEST_MISTYPED = 5;
// What says nothing of a question or of an error that somebody pastes, where other words are typed.
const EMPTY = new RegExp(`^(?:${[
  "an? the i my we our you is are be do did should must can could would will why when which where who to of in on",
  "at by for from with and or it its this that there then than if explain runtimeerror assertionerror valueerror",
].join(" ").replaceAll(" ", "|")})$`, "i");
const FRAME = /File "[^"]*", line \d+, in \S+/g; // of a traceback: where, but not what
const folder = new URL("../search/", document.currentScript.src).href;
const loading = {};

window.proofbookSearch = {}; // what was loaded, by its name

const load = (name) => (loading[name] ||= new Promise((resolve) => {
  const onload = () => resolve(proofbookSearch[name]);
  document.head.append(Object.assign(document.createElement("script"), { src: `${folder}${name}.js`, onload }));
}));

const rules = load("index").then((index) => ({
  ...index,
  word: new RegExp(index.word, "g"),
  piece: new RegExp(`${index.word}|[&<>"]`, "g"),
  within: new RegExp(index.within),
  number: new RegExp(index.number),
  endings: index.endings.map(([pattern, kept]) => [new RegExp(pattern), kept]),
}));

const stem = (word, { endings }) =>
  endings.reduce((cut, [pattern, kept]) => cut.replace(pattern, kept), word.toLowerCase());

// A word without its ending, joined, and its parts where it has several.
const read = (word, by) => {
  const parts = word.split(by.within).map((part) => stem(part, by));
  return { word, whole: stem(word.replace(/[-_.'’]/g, ""), by), parts: parts.length > 1 ? parts : [], isName: !word.includes("-") };
};

// The numbers of the parts in which words from `first` to `last` stand.
const within = (starts, first, last = first) => {
  const from = Math.max(0, starts.findLastIndex((start) => start <= first));
  return starts.slice(from).flatMap((start, number) => (number && start > last ? [] : [from + number]));
};

// The index of some words, and of longer ones that begin with them: word → [weight, [section, score] …, leads].
const lookUp = async (words, by, end = "") => {
  const last = (word) => word + (word.length < SHORTEST ? end : "\uffff");
  const numbers = new Set(words.flatMap((word) => within(by.words, word, last(word))));
  const parts = await Promise.all([...numbers].map((number) => load(`words-${number}`)));
  return new Map(parts.flat().map(([word, ...of]) => [word, of]));
};

// The weight of a typed word, and by section its score there.
const weigh = ({ whole, parts, isName }, index) => {
  const scores = new Map();
  const raise = (section, score) => scores.set(section, Math.max(score, scores.get(section) || 0));
  const own = index.get(whole);
  const ofParts = parts.flatMap((part) => (index.has(part) ? [index.get(part)] : []));
  const isBegun = !own && !ofParts.length && whole.length >= SHORTEST;
  const longer = isBegun ? [...index].flatMap(([word, of]) => (word.startsWith(whole) ? [of] : [])) : [];
  const weight = Math.max(0, ...[own || [0], ...ofParts, ...longer].map(([one]) => one));
  for (const [, found] of longer) for (const [section, score] of found) raise(section, BEGINS * score);
  const sums = new Map();
  for (const [, found] of ofParts)
    for (const [section, score] of found) sums.set(section, (sums.get(section) || 0) + (PARTS * score) / parts.length);
  for (const [section, score] of sums) raise(section, score);
  // What has an identifier whole comes before what has its parts.
  for (const [section, score] of own?.[1] || []) raise(section, score + (parts.length && isName && weight));
  return { weight, scores };
};

// Whether two words are one slip apart: a letter more, less, other, or in its neighbour's place.
const isNear = (one, other) => {
  const at = [...one].findIndex((letter, place) => letter !== other[place]);
  const [rest, others] = [one, other].map((word) => word.slice(at < 0 ? one.length : at));
  const [next, nexts] = [rest.slice(1), others.slice(1)];
  const isSwapped = rest.slice(2) === others.slice(2) && rest[0] === others[1] && rest[1] === others[0];
  return next === others || rest === nexts || next === nexts || isSwapped;
};

// A word that nobody wrote, as the commonest word that is one slip apart; else as it is.
const corrected = async (word, by) => {
  if (word.whole.length < SHORTEST_MISTYPED) return word;
  const index = await lookUp([word.whole[0]], by, "\uffff");
  const near = [...index].filter(([one]) => isNear(word.whole, one));
  const [best] = near.sort(([, [, one]], [, [, other]]) => other.length - one.length);
  return best ? { ...word, whole: best[0], parts: [] } : word;
};

// The best sections, each with its score: the sum of its words and of its best lead, times the share of words it has.
const rank = (typed, index) => {
  const full = typed.filter(({ word }) => !EMPTY.test(word));
  const words = (full[0] ? full : typed).map((word) => weigh(word, index)).sort((one, other) => other.weight - one.weight);
  const found = new Map();
  for (const { weight, scores } of words.slice(0, MOST_WORDS))
    for (const [section, score] of scores) {
      const [sum, share] = found.get(section) || [0, 0];
      found.set(section, [sum + score, share + weight]);
    }
  const said = new Set(typed.map(({ whole }) => whole));
  const led = new Map();
  for (const word of said)
    for (const [section, gain, others] of index.get(word)?.[2] || [])
      if (others.every((one) => said.has(one))) led.set(section, Math.max(gain, led.get(section) || 0));
  return [...found]
    .map(([section, [sum, share]]) => [section, (sum + (led.get(section) || 0)) * share])
    .sort((one, other) => other[1] - one[1] || one[0] - other[0])
    .slice(0, MOST_SECTIONS);
};

// What the theme shows: pages, each with its sections, the best first.
proofbookSearch.find = async (text) => {
  const by = await rules;
  const words = (text.replace(FRAME, " ").match(by.word) || []).filter((word) => !by.number.test(word));
  const asked = [...new Map(words.map((word) => read(word, by)).map((word) => [word.whole, word])).values()];
  const forms = (of) => [...new Set(of.flatMap(({ whole, parts }) => [whole, ...parts]))];
  const known = await lookUp(forms(asked), by);
  const typed = await Promise.all(asked.map((word) => (weigh(word, known).scores.size ? word : corrected(word, by))));
  const sought = forms(typed);
  const index = await lookUp(sought, by);
  const ranked = rank(typed, index);
  const lacking = typed.filter((word) => !weigh(word, index).scores.size).map(({ word }) => [word, false]);
  const numbers = ranked.map(([section]) => within(by.sections, section)[0]);
  const parts = await Promise.all(numbers.map((number) => load(`sections-${number}`)));

  const isFound = (word) => {
    const { whole, parts: own } = read(word, by);
    return [whole, ...own].some((one) => sought.some((it) => one === it || (it.length >= SHORTEST && one.startsWith(it))));
  };
  const mark = (piece) => (isFound(piece) ? `<mark>${piece}</mark>` : piece);
  const marked = (shown) =>
    shown.replace(by.piece, (piece) => (/\w/.test(piece) ? mark(piece) : `&#${piece.charCodeAt()};`));
  const below = (eyebrow, title) => `${eyebrow && `<span class="pb-eyebrow">${eyebrow}</span><br>`}${marked(title)}`;
  const cut = (whole) => {
    const first = [...whole.matchAll(by.word)].find(([word]) => isFound(word))?.index || 0;
    const from = first < SHOWN / 2 ? 0 : whole.indexOf(" ", first - BEFORE) + 1;
    const shown = whole.slice(from).replace(new RegExp(`^(.{${SHOWN}}\\S*).+`), "$1 …");
    return marked(`${from ? "… " : ""}${shown}`);
  };
  const pages = new Map();
  for (const [at, [section, score]] of ranked.entries()) {
    const [address, title, says, kind, page, place] = parts[at][section - by.sections[numbers[at]]];
    const [path, anchor] = address.split("#");
    if (!pages.has(path)) pages.set(path, [{ location: path, title: below(place, page), text: "", score: 0, terms: {} }]);
    const own = { score, terms: at ? {} : Object.fromEntries(lacking), text: cut(says) };
    if (anchor) pages.get(path).push({ ...own, location: address, title: below(kind, title) });
    else Object.assign(pages.get(path)[0], own);
  }
  const groups = [...pages.values()].map((group) => group.sort((one, other) => other.score - one.score));
  // Material takes the last entry for the page where none is without an anchor: its title leads to the best section.
  for (const group of groups) if (!group.at(-1).score) group.at(-1).location = group[0].location;
  return groups;
};
