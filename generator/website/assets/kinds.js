// The kinds of questions: how each is read from its form, put back, and compared with its key.

const book = window.proofbook;
const { say, all, made } = book;
const words = Object.assign(book.words, book.asking);

// The text of an element, with the LaTeX of its formulas.
function plain(element) {
  const copy = element.cloneNode(true);
  all(copy, "math").forEach((math) => math.replaceWith(math.querySelector("annotation").textContent));
  return copy.textContent.trim();
}

const place = (element) => Number(element.dataset.position);
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

// ——— The kinds ———
//
// `read` takes the answer from the form and `put` puts it back; `judge` compares it with the key
// and says which explanations are about it; `stands` says of one option how it was answered. A kind may have
// more: `start` prepares its form; `settle` puts the right answer into it, and gives the options in the
// order in which they are explained; `isQuiet` explains nothing before the last try; `isGuess` is not
// graded; `texts` selects what the right answer says of each part, and `joint` stands between them.

const ticked = (q) => q.options.filter((one) => one.querySelector("input").checked).map(place);

const chosen = {
  read: (q) => ticked(q)[0] ?? null,
  put: (q, answer) =>
    q.options.forEach((one) => {
      one.querySelector("input").checked = [].concat(answer).includes(place(one));
    }),
  judge: (q, answer) => {
    const about = q.key.filter((one) => [].concat(answer).includes(place(one)));
    const isSound = about.every((one) => one.dataset.verdict === "right");
    const isRight = isSound && about.length === q.key.filter((one) => one.dataset.verdict === "right").length;
    return { isRight, about, lead: isSound && !isRight ? words.lacks : "" };
  },
  stands: (q, answer, option, { verdict }) => {
    const isPicked = [].concat(answer).includes(place(option));
    const isRight = verdict === "right";
    // Of one option that is right, those that nobody chose were no mistake.
    const isSaid = isPicked || isRight || q.how.isQuiet;
    const how = isPicked ? "picked" : q.how.isQuiet && answer !== null ? "left" : "given";
    return { note: isSaid ? words[`${how}_${verdict}`] : "", verdict: isPicked || isRight ? verdict : "" };
  },
};

const several = {
  ...chosen,
  isQuiet: true,
  read: (q) => (ticked(q).length ? ticked(q) : null),
};

const ordered = {
  start: (q) =>
    q.options.forEach((piece) => {
      const name = plain(piece.querySelector(".pb-piece"));
      all(piece, "button").forEach((one, isDown) => {
        one.hidden = false;
        one.addEventListener("click", () => {
          const other = isDown ? piece.nextElementSibling : piece.previousElementSibling;
          if (!other || q.isDone) return;
          q.isMoved = true;
          // The neighbour moves, so that focus stays on the button.
          piece[isDown ? "before" : "after"](other);
          const n = ordered.order(q).indexOf(place(piece)) + 1;
          q.status.textContent = say("moved", { piece: name, n, m: q.options.length });
        });
      });
    }),
  // Pieces that nobody has moved are no answer yet.
  read: (q) => (q.isMoved ? ordered.order(q) : null),
  order: (q) => all(q.form, ".pb-pieces > li").map(place),
  put: (q, answer) => {
    q.isMoved = true;
    q.form.querySelector(".pb-pieces").append(...answer.map((at) => q.option(at)));
  },
  settle: (q) => {
    ordered.put(q, q.key.map(place));
    return q.key.map((one) => q.option(place(one)));
  },
  joint: " → ",
  judge: (q, answer) => misplaced(q, answer, q.key.map(place), ".pb-said"),
  stands: (q, answer, option, key, position) => {
    const was = answer ? answer.indexOf(place(option)) : position;
    const isRight = was === position;
    return { note: isRight ? "" : say("was_at", { n: was + 1 }), verdict: isRight ? "right" : "wrong" };
  },
};

const matched = {
  read: (q) => {
    const picked = all(q.form, "select").map((one) => one.value);
    return picked.includes("") ? null : picked.map(Number);
  },
  put: (q, answer) => all(q.form, "select").forEach((one, at) => (one.value = String(answer[at]))),
  texts: ".pb-said, .pb-beside",
  judge: (q, answer) => misplaced(q, answer, q.key.map(place), ".pb-beside"),
  stands: (q, answer, option, key, position) => {
    if (!answer) return { note: "", verdict: "right" };
    const { selectedOptions } = option.querySelector("select");
    const isRight = answer[position] === place(option);
    const note = isRight ? words.right : say("matched", { yours: selectedOptions[0].text });
    return { note, verdict: isRight ? "right" : "wrong" };
  },
};

// The first thing that stands where another belongs, with what is true of it.
function misplaced(q, answer, right, name) {
  const first = answer.findIndex((one, at) => one !== right[at]);
  if (first < 0) return { isRight: true, about: q.key };
  const about = q.key[right.indexOf(answer[first])];
  const piece = plain(about.querySelector(name));
  return { isRight: false, about: [about], hint: say("misplaced", { piece }) };
}

// ——— Numbers that are typed ———

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
  range.value = range.max / 2;
  range.hidden = false;
  const tell = () => range.setAttribute("aria-valuetext", `${q.field.value} ${q.unit}`);
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
    const truth = made("p", "pb-truth pb-live");
    const share = (q.key[0].dataset.number - low) / (high - low);
    truth.style.setProperty("--at", Math.max(0, Math.min(1, share)));
    truth.append(made("span", "pb-label", q.key[0].querySelector(".pb-said").textContent));
    range.after(truth);
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
  put: (q, answer) => {
    q.field.value = typeof answer === "number" ? printed(answer / q.scale, 12) : answer;
    q.field.dispatchEvent(new Event("input")); // sets the slider
  },
  judge: (q, answer) => {
    const found = q.key.find((one) => isWithin(one, answer));
    const isNumber = !found && typeof answer === "number";
    const way = answer < q.key[0].dataset.number ? words.too_low : words.too_high;
    return { isRight: found === q.key[0], about: found ? [found] : [], hint: isNumber ? `${way}.` : "" };
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
    const hint = say("you_said", { yours, shown });
    return { isRight, about, lead: words[isRight ? "close" : "not_close"], hint };
  },
};

const KINDS = {
  choice: chosen,
  several,
  faulty_line: chosen,
  order: ordered,
  match: matched,
  number: typed,
  predict: predicted,
};

Object.assign(book, { place, plain, KINDS });
