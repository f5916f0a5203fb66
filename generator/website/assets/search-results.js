// What the theme's search found, put in order once more: by the share of the typed words that an
// entry has, more where they stand side by side. Before it come a term of the glossary that somebody
// types, and a place that the typed words lead to by content/glossary.yml. The results also say where
// a page belongs whose title does not. Loaded with the search, on the first focus of its field.

const SETUP = 0; // the kinds of message that the theme and its worker send each other
const QUERY = 2;
const RESULT = 3;
const SIDE_BY_SIDE = 3; // what a score grows by where every typed word stands so
const SECTION = 2.5; // what it grows by in a section, which is nearer to an answer than a page
const STATEMENT = 0.4; // what remains of it where a title is a statement that the book tests
const TITLED = 4; // what it grows by where an identifier that is typed stands in the title
const UNNAMED = 0.1; // what remains of it where an identifier that is typed does not stand
const DEFINES = /^\s*(what|define|explain)\b|\b(definition|meaning|mean)\b/i;
const ENDING =
  /(?<=ch|sh|ss|x)es$|(?<=\w\w[^\Ws])s$|(?<=\w{5})(ing|ed|ers?|ations?|isms?)$|(?<=\w{4})i[sz](e[drs]?|ers|ing|ations?)$/;
const entries = new Map();
const terms = [];
const leads = [];
const alone = new Map();
const numbered = new Set(); // names that end in a number, in one word
let between;
let typed = "";

// A word without its ending: `averaged` finds `average`, and `optimiser` finds `optimizer`.
const stem = (word) => {
  const cut = word.replace(ENDING, "");
  return (cut === word ? word : cut.replace(/([bdgmnprt])\1$/, "$1")).replace(/(?<=\w{5})e$/, "");
};
// A name with a number is one word: `zero3`, `zero-3` and `ZeRO stage 3`, or `fsdp v2`.
const joined = (text) =>
  text.replace(/\b([a-z]{3,})[\s_-]*(?:stage|version|v)?[\s_-]*(\d)\b/gi, (spelled, name, number) =>
    numbered.has(name.toLowerCase() + number) ? name + number : spelled
  );
const stems = (text) => (joined(text).toLowerCase().match(/\w+/g) || []).map(stem);
const words = (text) => joined(text.replace(/<[^>]*>|_/g, " ")).split(between).filter(Boolean);
const plain = (text) => words(text).map((word) => stem(word.toLowerCase())).join(" ");

// As names of terms are compared: `what does all_reduce mean` asks for the all-reduce.
const bare = (text) => plain(text).replace(/ mean$/, "");

const learn = ({ config, docs }) => {
  between = new RegExp(config.separator);
  const synonyms = docs.map((entry) => entry.title_synonyms || "").join(", ").toLowerCase();
  for (const name of synonyms.match(/\b[a-z]{3,}\d\b/g) || []) numbered.add(name);
  for (const entry of docs) {
    entries.set(entry.location, { ...entry });
    for (const lead of entry.leads || []) leads.push([stems(lead), entry.location]);
    for (const lead of entry.alone || []) alone.set(plain(lead), entry.location);
    if (!entry.names) continue;
    const others = (entry.title_synonyms || "").split(", ").map(bare).filter(Boolean);
    terms.push([entry.names.map(bare), others, entry.location]);
  }
  leads.sort(([one], [other]) => one.length - other.length); // the longest comes to stand first
};

// What the worker is asked for: in most searches, GPU says no more than rank or device.
const sought = () => plain(typed).replace(/\bgpu (?=.)|(?<=.) gpu\b/g, "");

// The words of an entry as one text; made when they are first asked for.
const said = (location) => {
  const entry = entries.get(location);
  entry.said = entry.said || ` ${plain(entry.title)} | ${plain(entry.text)} `;
  return entry.said;
};

// The share of the typed pairs of words that stand side by side; the last word may be unfinished.
const together = (location) => {
  const all = plain(typed).split(" ");
  const pairs = all.slice(1).map((word, index) => ` ${all[index]} ${word}`);
  return pairs.length && pairs.filter((pair) => said(location).includes(pair)).length / pairs.length;
};

// The typed identifiers, or parts of them; whether an entry has each: its words side by side.
const names = () => typed.match(/\w+_\w+/g) || [];
const isNamed = (location) => names().every((name) => said(location).includes(` ${plain(name)}`));

// Who types an identifier finds what has it, marked whole, and not each of its words.
const name = (items) => {
  const named = items.filter((group) => group.some(({ location }) => isNamed(location)));
  if (!names().length || !named.length) return;
  const pattern = new RegExp(names().join("|"), "gi");
  const marked = (html) => html.replace(/<\/?mark[^>]*>/g, "").replace(pattern, "<mark>$&</mark>");
  const isKept = ({ location }) => !location.includes("#") || isNamed(location);
  items.splice(0, items.length, ...named.map((group) => group.filter(isKept)));
  for (const found of items.flat()) Object.assign(found, { title: marked(found.title), text: marked(found.text) });
};

const score = (found) => {
  const has = Object.values(found.terms);
  const share = has.filter(Boolean).length / (has.length || 1);
  const near = found.location.includes("#") ? SECTION : 1;
  const kind = found.title.startsWith("\u201c") ? STATEMENT : 1;
  const isTitle = names().length && names().every((one) => plain(found.title).includes(plain(one)));
  const named = isTitle ? TITLED : isNamed(found.location) ? 1 : UNNAMED;
  return found.score * near * kind * named * share ** 2 * (1 + SIDE_BY_SIDE * together(found.location));
};

const byScore = (one, other) => other.score - one.score;
const best = (items) => items.flat().reduce((one, other) => (other.score > one.score ? other : one), { score: 0 });

const lead = (items, location) => {
  const [page] = location.split("#");
  const highest = best(items).score || 1;
  let group = items.find((one) => one.some((found) => found.location.split("#")[0] === page));
  if (!group) items.push((group = [{ ...entries.get(page), score: 0 }]));
  let led = group.find((found) => found.location === location);
  if (!led) group.push((led = { ...entries.get(location) }));
  led.score = 2 * highest;
};

// A term comes first where somebody asks what it is, and else second to a place that the words lead
// to or to a lesson whose heading begins with it.
const define = (items, isLed) => {
  const asked = bare(typed);
  const [names, others, location] =
    terms.find((term) => term[0].includes(asked)) || terms.find((term) => term[1].includes(asked)) || [];
  if (!names) return;
  const first = best(items);
  const heading = `${stems(entries.get(first.location)?.title || "").join(" ").replace(/^(the|an?) /, "")} `;
  const isLesson = isLed || [...names, ...others].some((name) => heading.startsWith(`${name} `));
  lead(items, location);
  if (isLesson && !DEFINES.test(typed)) first.score *= 4;
};

const arrange = ({ items }) => {
  name(items);
  for (const found of items.flat()) found.score = score(found);
  const all = new Set(stems(typed));
  const part = /^\s*\w*_\w+\s*$/.test(typed) && [...all][0]; // perhaps of an identifier
  const led = leads.filter(([needed]) => needed.every((word) => all.has(word) || (part && word.includes(part))));
  for (const [, location] of led) lead(items, location);
  const whole = alone.get(plain(typed));
  if (whole) lead(items, whole);
  define(items, whole || led.length);
  for (const found of items.flat()) {
    found.terms = {}; // of which the theme would list those that a result lacks, without their endings
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
    addEventListener("message", ({ source, data }) => {
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
    if (message.type === QUERY) typed = message.data.replace(/\b(?:\w+\.){3,}(?=[a-z])/gi, ""); // modules of a name
    worker.postMessage(message.type === QUERY ? { ...message, data: sought() } : message);
  };
};
