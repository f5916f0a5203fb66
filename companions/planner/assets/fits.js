// Whether a training fits: closed forms of Python, which memory-law.js has, for what a reader chooses. The form
// of the home page asks for less.

const { all, fits: said, kept, keep } = book;
const form = document.querySelector("[data-fits]");
const GIB = 2 ** 30;
const field = (name) => form.elements[name];
const gib = (bytes) => (bytes / GIB).toFixed(1);
const choices = all(form, "[data-choice]");
const fields = (option) => JSON.parse(option.dataset.fields);

// The answer to a form's values, a change of them included; an error says what no rank can do.
function answered(change = {}) {
  const chosen = { ...Object.fromEntries(new FormData(form)), ...change };
  const [devices, sequence, microbatch] = [chosen.devices, chosen.sequence, chosen.microbatch].map(Number);
  const sizes = Object.fromEntries(all(form, "[data-size]").map(({ name, value }) => [name, Number(value)]));
  const { law } = book;
  const { models, strategies, training } = law.given;
  const strategy = strategies[`${devices} ${chosen.strategy}`];
  if (!strategy) throw new Error(said.alone);
  const how = choices.map((one) => fields(one.selectedOptions[0]));
  const question = new law.Question({
    model: { architecture: new law.Architecture({ ...models[chosen.model], ...sizes }) },
    training: Object.assign({}, training, ...how, change.how, { sequence, microbatch, global_batch: microbatch * devices }),
    strategy: new law.Strategy(strategy),
  });
  question.check();
  const answer = law.answer(question);
  return { answer, needs: law.needs(answer), fits: law.verdict(answer, field("memory").value * GIB) };
}

function isFit(change) {
  try {
    return answered(change).fits === "fits";
  } catch {
    return false;
  }
}

// The fewest devices with which it fits, of so many and more.
function least(change, from) {
  const counts = [...field("devices").options].map(({ value }) => Number(value));
  return counts.find((devices) => devices >= from && isFit({ ...change, devices })) || Infinity;
}

// Changes with which it fits: of one setting, else of two; and the fewest devices, with one more at most.
function turns() {
  const others = (select) => [...select.options].filter((option) => !option.selected);
  const changes = choices.flatMap((one) => others(one).map((option) => ({ one, option, how: fields(option) })));
  const chosen = field("strategy");
  if (field("devices").value > 1) others(chosen).forEach((option) => changes.push({ one: chosen, option, strategy: option.value }));
  if (field("microbatch").value > 1) changes.push({ one: field("microbatch"), option: { text: said.microbatch }, microbatch: 1 });
  const pairs = changes.flatMap((a, at) => changes.slice(at).filter(({ one }) => one !== a.one).map((b) => [a, b]));
  const both = (several) => Object.assign({}, ...several, { how: Object.assign({}, ...several.map(({ how }) => how)) });
  const fitting = (tried) => tried.filter((several) => isFit(both(several)));
  const single = fitting(changes.map((one) => [one]));
  const found = (single.length ? single : fitting(pairs)).map((several) => several.map(({ option }) => option.text).join(said.and));
  const enough = (change) => least(change, Number(field("devices").value) + 1);
  const wider = [{}, ...changes].map((change) => [enough(change), change]).sort(([a], [b]) => a - b);
  const [[n, { option }]] = wider;
  const words = [said.devices.replace("{n}", n), chosen.selectedOptions[0].text, ...(option ? [option.text] : [])];
  if (n < Infinity) found.push(words.join(said.and));
  return found.length ? `${said.turns}${[...found.slice(0, 2), ...found.slice(2).slice(-1)].join(said.or)}.` : said.nothing;
}

// How long all tokens take at least: computing alone, at the highest rate of the devices.
function duration(answer, flops) {
  const tokens = Number(field("tokens").value);
  const days = book.law.days_of(answer, tokens, Math.max(...answer.ranks.map((rank) => rank.flops)) / flops);
  const short = (number) => number.toLocaleString("en", { maximumSignificantDigits: 3 });
  return said.duration.replace("{tokens}", short(tokens)).replace("{days}", short(days));
}

function show() {
  field("strategy").parentElement.hidden = field("devices").value === "1"; // with its words
  const numbers = all(form, "[type=number]");
  const [hidden, heads, keys] = ["hidden_size", "num_heads", "num_kv_heads"].map((name) => field(name)?.value);
  let told = said.unread;
  let terms = {};
  let turned = "";
  if (numbers.every((one) => one.value && one.validity.valid) && !(hidden % heads) && !(heads % keys)) {
    try {
      const { answer, needs, fits } = answered();
      const { at_peak: peak, reserved_bytes } = answer.ranks.reduce((a, b) => (b.reserved_bytes > a.reserved_bytes ? b : a));
      terms = Object.fromEntries(Object.entries(peak).map(([name, bytes]) => [name.replace("_bytes", ""), bytes]));
      terms.outside = needs - reserved_bytes;
      told = said[fits].replace("{needs}", gib(needs)).replace("{memory}", gib(field("memory").value * GIB));
      const n = least({}, 1);
      const { flops, lacks = "" } = field("device").selectedOptions[0].dataset;
      turned = (n < Infinity ? said.fewest.replace("{n}", n) : "") + (fits === "fits" ? "" : turns()) + lacks;
      if (flops && field("tokens")) turned += ` ${duration(answer, flops)}`;
    } catch ({ message }) {
      told = message;
    }
  }
  form.querySelector("[role=status]").textContent = told;
  form.querySelector("[data-turns]").textContent = turned;
  all(form, "[data-term]").forEach((cell) => (cell.textContent = cell.dataset.term in terms ? `${gib(terms[cell.dataset.term])} GiB` : "–"));
}

// A model fills its sizes, and a device its memory.
function fill({ name }) {
  const { models, training } = book.law.given;
  const model = models[field("model").value];
  if (name === "model") {
    all(form, "[data-size]").forEach((one) => (one.value = model[one.name]));
    field("sequence").max = model.context_length;
    field("sequence").value = Math.min(training.sequence, model.context_length);
  }
  const { mib } = field("device").selectedOptions[0].dataset;
  if (name === "device" && mib) field("memory").value = (mib / 1024).toFixed(2);
  if (name === "memory") field("device").value = "own";
}

const asked = () => [...new FormData(form)].map(([name, value]) => [name, [value]]);

function begin() {
  ["model", "device"].forEach((name) => fill(field(name)));
  asked().forEach(([name, [first]]) =>
    kept(name).forEach((value) => {
      field(name).value = value;
      field(name).value ||= first; // no option
    })
  );
  form.addEventListener("input", ({ target }) => {
    fill(target);
    show();
  });
  form.addEventListener("change", () => {
    keep("does-it-fit", Object.fromEntries(asked()));
    all(document, "[data-on]").forEach((link) => (link.search = location.search));
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

book.load(form.dataset.fits, begin);
