// Calculators. Without this file a page shows what they come to at the start.
(function () {
  "use strict";

  var signs = {
    "+": (a, b) => a + b,
    "-": (a, b) => a - b,
    "*": (a, b) => a * b,
    "/": (a, b) => (b ? a / b : NaN), // a dash, in min too
    min: Math.min,
    max: Math.max
  };
  var bytes = ["B", "KiB", "MiB", "GiB", "TiB"].map((name, power) => [Math.pow(1024, power), name]);
  var scales = {
    bytes: bytes,
    bytes_per_second: bytes.map((one) => [one[0], one[1] + "/s"]),
    seconds: [[1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
    share: [[0.01, "%"]]
  };

  // Postfix, as generator/evidence/formula.py writes it.
  function worked(postfix, inputs) {
    var stack = [];
    postfix.split(" ").forEach((token) => {
      if (signs[token]) stack.push(signs[token](...stack.splice(-2)));
      else if (token === "~") stack.push(-stack.pop());
      else stack.push(token in inputs ? inputs[token] : Number(token));
    });
    return stack[0];
  }

  function written(number, isCounted) {
    var size = Math.abs(number);
    if (size > 1e15 || (size && size < 1e-4)) return number.toPrecision(3);
    return number.toLocaleString("en", size < 100 && !(isCounted && number % 1 === 0)
      ? { minimumSignificantDigits: 3, maximumSignificantDigits: 3 }
      : { maximumFractionDigits: 0 });
  }

  function shown(number, quantity) {
    if (!isFinite(number)) return "–";
    var scale = (scales[quantity] || [[1, ""]]).reduce((kept, next) =>
      Math.abs(number) < next[0] ? kept : next);
    return (written(number / scale[0], /^B|^$/.test(scale[1]))
      + (scale[1] === "%" ? "" : "\u00a0") + scale[1]).trim();
  }

  // Whether two numbers differ by more than the rounding of what fields allow.
  var isApart = (number, other, by = 1e-5) => Math.abs(number - other) > by * Math.abs(other);

  document.querySelectorAll("[data-calculator] form").forEach((form) => {
    var fields = form.querySelectorAll("[type=number]");
    var said = JSON.parse(form.dataset.said);
    var below = form.querySelector("[data-beyond]");

    // What stays is not read out again.
    var say = (status, text) => status.textContent !== text && (status.textContent = text);

    // What is wrong with a number; `most` is what the other fields allow.
    function wrong(field, number, most) {
      if (number < 0 || (number === 0 && field.min > 0)) return field.min > 0 ? "zero" : "negative";
      if ("isWhole" in field.dataset && isApart(number, Math.round(number), 1e-9)) return "whole";
      return number > most && isApart(number, most) ? "most" : "";
    }

    function calculate() {
      var typed = {};
      var inputs = {};
      var beyond = []; // fields with values that no run had
      fields.forEach((field) => {
        typed[field.name] = field.value === field.defaultValue ? +field.dataset.start
          : field.value ? field.value * field.dataset.size : NaN;
      });
      fields.forEach((field) => {
        var { most, covered, size } = field.dataset;
        var number = typed[field.name];
        // What was refused before allows anything.
        var limit = most ? worked(most, { ...typed, ...inputs }) : Infinity;
        var fault = wrong(field, number, limit);
        if (!fault && (covered || "").split(" ").some((end, at) =>
          isApart(number, end) && (at ? number > end : number < end))) beyond.push(field.name);
        var status = field.closest(".pb-field").querySelector("[role=status]");
        inputs[field.name] = fault ? NaN : number;
        field.setAttribute("aria-invalid", Boolean(fault));
        say(status, (said[fault] || "").replace("{most}", () =>
          `${+(limit / size).toPrecision(6)} ${(field.nextElementSibling || {}).textContent || ""}`.trim()));
      });
      say(below, beyond.length ? said.beyond.replace("{names}", beyond.join(", ")) : "");
      form.querySelectorAll("output").forEach((output) => {
        output.dataset.number = worked(output.dataset.formula, inputs);
        output.value = shown(+output.dataset.number, output.dataset.quantity);
      });
    }

    fields.forEach((field) => {
      var slider = field.closest(".pb-field").querySelector("[type=range]");
      var step = field.dataset.step;
      var isPowers = /powers/.test(step);
      var along = isPowers ? Math.log : Number;
      var low = along(field.min);
      var room = along(field.max) - low;

      function told() {
        slider.ariaValueText = field.value;
        calculate();
      }
      function follow() {
        slider.value = 1000 * (along(field.value) - low) / room;
        told();
      }
      slider.addEventListener("input", () => {
        var at = low + room * slider.value / 1000;
        var number = +(isPowers ? Math.exp(at) : at).toPrecision(3);
        var ofOne = /whole/.test(step) ? 1 : "isWhole" in field.dataset && field.dataset.size;
        field.value = ofOne ? Math.round(number * ofOne) / ofOne : number;
        told();
      });
      field.addEventListener("input", follow);
      window.addEventListener("pageshow", follow); // a browser that comes back brings its numbers
      follow();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
  });
})();
