// Questions whose answer is typed: a number with its unit, a shape, a prediction.

const { say } = book;
const words = Object.assign(book.words, book.numbers);
const printed = (number, digits) =>
  Number(number.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 }).replace("-", "−");

// A shape in any spelling, `50 × 20`, `50x20`, `[50, 20]`, with and without thousands; or a word.
function spelled(text) {
  const read = (typed) => (typed.match(/\d+/g) || [typed.trim().toLowerCase()]).join();
  return [read(text.replace(/(\d)[,\s'’](?=\d{3}(\D|$))/g, "$1")), read(text)];
}

function isWithin(answer, typed) {
  const { number, within, words: shape } = answer.dataset;
  if (shape) return spelled(typed).includes(spelled(shape)[0]);
  return Math.abs(typed - number) <= within * (1 + 1e-9) + 1e-12 * Math.abs(typed);
}

// The numbers that a text may mean, in base units: a point or a comma may part decimals, and the
// other one thousands, which come by three, as spaces do. The unit asked for may follow, and no other.
function numbers(text, { unit, scale }) {
  const found = /^([+-]?\d[\d.,\s]*(?:e[+-]?\d+)?)(.*)$/i.exec(text.trim().replace(/[−–]/g, "-"));
  if (!found || !["", unit.toLowerCase()].includes(found[2].toLowerCase())) return [];
  const digits = found[1].trim().replace(/\s(?=\d{3}(\D|$))/g, "");
  const read = (thousands, decimals) => {
    const parts = digits.split(thousands);
    const isGrouped = /^[+-]?[1-9]\d{0,2}$/.test(parts[0]) && parts.slice(1).every((part) => /^\d{3}(\D|$)/.test(part));
    return parts.length > 1 && !isGrouped ? NaN : Number(parts.join("").replace(decimals, "."));
  };
  return [read(",", "."), read(".", ",")].map((number) => number * scale).filter(Number.isFinite);
}

// The slider of a prediction sets the number in the field, and a number that is typed sets the slider.
function slides(q, { dataset, firstElementChild: range }) {
  const [low, high] = [Number(dataset.low), Number(dataset.high)];
  // Of whole numbers, each can be set.
  const isWhole = [low, high, Number(q.key[0].dataset.number)].every((one) => Number.isInteger(one / q.scale));
  range.max = isWhole ? (high - low) / q.scale : 100;
  range.value = 0; // until it is set
  range.hidden = false;
  const tell = () => (range.ariaValueText = `${q.field.value} ${q.unit}`);
  q.field.addEventListener("input", () => {
    const [typed] = numbers(q.field.value, q);
    const share = (typed - low) / (high - low);
    range.toggleAttribute("data-set", Number.isFinite(share));
    if (!Number.isFinite(share)) return;
    range.value = share * range.max;
    tell();
  });
  const slide = () => {
    range.dataset.set = ""; // until then it shows no answer
    const at = (low + ((high - low) * range.value) / range.max) / q.scale;
    q.field.value = isWhole ? Math.round(at) : printed(at, 2);
    tell();
  };
  range.addEventListener("input", slide);
  range.addEventListener("click", slide); // where it stands already
  // Once the question is answered, the truth is marked below the slider.
  q.mark = () => {
    const share = (q.key[0].dataset.number - low) / (high - low);
    range.nextElementSibling.style.setProperty("--at", Math.max(0, Math.min(1, share)));
  };
}

const typed = {
  start: (q) => {
    const ends = q.form.querySelector("[data-low]");
    q.field = q.form.querySelector(".pb-number-field");
    q.scale = Number(q.field.dataset.scale);
    q.unit = q.form.querySelector(".pb-unit")?.textContent || "";
    if (ends) slides(q, ends);
  },
  // In base units, the reading that the key knows before others; a shape as it was typed.
  read: (q) => {
    const text = q.field.value.trim().slice(0, 100);
    const shape = q.key[0].dataset.words;
    if (shape) return /\d/.test(text) && (/\d\D+\d/.test(text) || !/\d\D+\d/.test(shape)) ? text : null;
    const meant = numbers(text, q);
    return [...meant.filter((number) => q.key.some((one) => isWithin(one, number))), ...meant, null][0];
  },
  unread: ({ unit, key, field }) =>
    field.value && (unit ? say("no_unit", { unit }) : words[key[0].dataset.words ? "no_shape" : "no_number"]),
  put: (q, answer) => {
    q.field.value = typeof answer === "number" ? printed(answer / q.scale, 12) : answer;
    q.field.dispatchEvent(new Event("input")); // sets the slider
  },
  judge: (q, answer) => {
    const found = q.key.find((one) => isWithin(one, answer));
    const { number, words: shape } = q.key[0].dataset;
    const [right, given] = [shape || "", String(answer)].map((one) => spelled(one)[0].split(","));
    const n = right.filter((size, at) => size === given[at]).length;
    const hint = shape ? say("sizes", { n, m: right.length }) : answer < number ? words.too_low : words.too_high;
    return { isRight: found === q.key[0], about: found ? [found] : [], hint: found ? "" : hint };
  },
};

// A prediction is not graded: it stands beside the answer.
const predicted = {
  ...typed,
  isGuess: true,
  judge: (q, answer) => {
    const { isRight, about } = typed.judge(q, answer);
    const { number } = q.key[0].dataset;
    const shown = q.key[0].querySelector(".pb-said").textContent;
    // As near as the printed number, which words may follow, it is the answer, and not close to it.
    const rounded = numbers(/^[−\d.,\s]+/.exec(shown)[0], q).map((one) => Math.abs(one - number));
    if (Math.abs(answer - number) <= Math.min(...rounded) + 1e-9 * Math.abs(number)) return { isRight, about };
    const yours = `${printed(answer / q.scale, 6)} ${q.unit}`.trim();
    const hint = say("you_said", { yours });
    return { isRight, about, lead: words[isRight ? "close" : "not_close"], hint };
  },
};

Object.assign(book.KINDS, { number: typed, predict: predicted });
