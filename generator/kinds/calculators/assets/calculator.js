// Calculators. Without this file a page shows what they come to at the start.

const { all, calculator: said, kept, keep } = book;

const SIGNS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => (b ? a / b : NaN), // a dash, in min too
  min: Math.min,
  max: Math.max,
};
const SCALES = {
  bytes: ["B", "KiB", "MiB", "GiB", "TiB"].map((name, power) => [1024 ** power, name]),
  "bytes/s": ["", "k", "M", "G", "T"].map((prefix, power) => [1000 ** power, `${prefix}B/s`]),
  seconds: [[1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
  share: [[0.01, "%"]],
};

// Postfix, as generator/values/formula.py writes it.
function worked(postfix, inputs) {
  const stack = [];
  postfix.split(" ").forEach((token) => {
    if (SIGNS[token]) stack.push(SIGNS[token](...stack.splice(-2)));
    else if (token === "~") stack.push(-stack.pop());
    else stack.push(token in inputs ? inputs[token] : Number(token));
  });
  return stack[0];
}

function written(number, isCounted) {
  const size = Math.abs(number);
  if (size > 1e15 || (size && size < 1e-4)) return number.toPrecision(3);
  const isShort = size < 100 && !(isCounted && Number.isInteger(number));
  const digits = isShort ? { minimumSignificantDigits: 3, maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 };
  return number.toLocaleString("en", digits);
}

function shown(number, quantity) {
  if (!isFinite(number)) return "–";
  const sizes = SCALES[quantity] || [[1, ""]];
  const [size, unit] = sizes.findLast(([one]) => one <= Math.abs(number)) || sizes[0];
  return `${written(number / size, /^B|^$/.test(unit))}${unit === "%" ? "" : "\u00a0"}${unit}`.trim();
}

// Whether one number is larger than another by more than the rounding of a field.
const isOver = (number, other) => number - other > 1e-5 * Math.abs(other);

// What is wrong with the number of a field; `most` is what the other fields allow.
function faultOf({ min, dataset, validity }, number, most) {
  // Some browsers let a reader type anything.
  if (validity.badInput || isNaN(number)) return /whole/.test(dataset.step) ? "whole" : "unread";
  if (number < 0 || (number === 0 && min > 0)) return min > 0 ? "zero" : "negative";
  if ("isWhole" in dataset && Math.abs(number - Math.round(number)) > 1e-9 * number) return "whole";
  return isOver(number, most) ? "most" : "";
}

function operate(form) {
  const fields = all(form, "[type=number]");

  function calculate() {
    const inputs = {};
    const beyond = []; // fields with values that no run had
    fields.forEach(({ name, value, defaultValue, dataset: { start, size } }) => {
      inputs[name] = value === defaultValue ? Number(start) : value ? value * size : NaN;
    });
    fields.forEach((field) => {
      const { most, covered, size } = field.dataset;
      const number = inputs[field.name];
      const limit = most ? worked(most, inputs) : Infinity;
      const fault = faultOf(field, number, limit);
      const [low, high] = (covered || `${-Infinity} ${Infinity}`).split(" ").map(Number);
      if (!fault && (isOver(low, number) || isOver(number, high))) beyond.push(field.dataset.called);
      if (fault) inputs[field.name] = NaN; // and allows the next ones anything
      field.setAttribute("aria-invalid", Boolean(fault));
      const told = (said[fault] || "").replace("{most}", Number((limit / size).toPrecision(6)));
      field.closest(".pb-field").querySelector("[role=status]").textContent = told;
    });
    const outside = beyond.length ? said.beyond.replace("{names}", beyond.join(", ")) : "";
    form.querySelector("[data-beyond]").textContent = outside;
    all(form, "output").forEach((output) => {
      output.dataset.number = worked(output.dataset.formula, inputs);
      output.value = shown(Number(output.dataset.number), output.dataset.quantity);
    });
  }

  // The slider of a field; where its ends are far apart, it moves by powers.
  function slides(field) {
    const slider = field.closest(".pb-field").querySelector("[type=range]");
    const { step } = field.dataset;
    const isPowers = /powers/.test(step);
    const along = isPowers ? Math.log : Number;
    const low = along(field.min);
    const room = along(field.max) - low;
    const told = () => {
      slider.ariaValueText = field.value;
      calculate();
    };
    const follow = () => {
      slider.value = (1000 * (along(field.value) - low)) / room;
      told();
    };
    slider.addEventListener("input", () => {
      const at = low + (room * slider.value) / 1000;
      const number = Number((isPowers ? Math.exp(at) : at).toPrecision(3));
      field.value = /whole/.test(step) ? Math.round(number) : number;
      told();
    });
    field.addEventListener("input", follow);
    addEventListener("pageshow", follow); // a browser that comes back brings its numbers
    follow();
  }

  // A known model fills all fields, until one of them is changed.
  const known = all(form, "[data-numbers]");
  const press = (pressed) => known.forEach((one) => one.setAttribute("aria-pressed", one === pressed));
  known.forEach((one) =>
    one.addEventListener("click", () => {
      const numbers = JSON.parse(one.dataset.numbers);
      fields.forEach((field) => {
        field.value = numbers[field.name] ?? field.defaultValue;
        field.dispatchEvent(new Event("input"));
      });
      press(one);
      form.dispatchEvent(new Event("change"));
    })
  );
  form.addEventListener("input", () => press());
  form.addEventListener("change", () => {
    const own = fields.map(({ name, value, defaultValue }) => [name, value === defaultValue ? [] : [value]]);
    keep("a-calculator", Object.fromEntries(own));
  });
  fields.forEach((field) => kept(field.name).forEach((value) => (field.value = value)));
  fields.forEach(slides);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
}

all(document, "[data-calculator] form").forEach(operate);
