// Calculators. Without this file a page shows the same formulas, their results for the numbers that
// stand there first, and how far each was from what runs measured. With it, numbers can be set.
(function () {
  "use strict";

  var signs = {
    "+": function (a, b) { return a + b; },
    "-": function (a, b) { return a - b; },
    "*": function (a, b) { return a * b; },
    "/": function (a, b) { return b ? a / b : NaN; }, // a dash, even inside min and max
    min: Math.min,
    max: Math.max
  };
  var scales = {
    bytes: [[1, "B"], [1024, "KiB"], [1048576, "MiB"], [1073741824, "GiB"], [1099511627776, "TiB"]],
    seconds: [[1e-6, "µs"], [1e-3, "ms"], [1, "s"]]
  };
  scales.bytes_per_second = scales.bytes.map(function (one) { return [one[0], one[1] + "/s"]; });

  function worked(postfix, inputs) {
    var stack = [];
    postfix.split(" ").forEach(function (token) {
      if (signs[token]) stack.push(signs[token].apply(null, stack.splice(-2)));
      else if (token === "~") stack.push(-stack.pop());
      else stack.push(token in inputs ? inputs[token] : Number(token));
    });
    return stack[0];
  }

  function written(number) {
    var size = Math.abs(number);
    if (size && (size < 1e-4 || size >= 1e15)) return number.toPrecision(3);
    return number.toLocaleString("en", size < 100 && number % 1
      ? { minimumSignificantDigits: 3, maximumSignificantDigits: 3 }
      : { maximumFractionDigits: 0 });
  }

  function shown(number, quantity) {
    if (!isFinite(number)) return "–";
    var scale = (scales[quantity] || [[1, ""]]).reduce(function (kept, next) {
      return Math.abs(number) >= next[0] ? next : kept;
    });
    return (written(number / scale[0]) + "\u00a0" + scale[1]).trim();
  }

  function Calculator(form) {
    var fields = Array.from(form.querySelectorAll("[type=number]"));
    var outputs = Array.from(form.querySelectorAll("output"));

    function calculate() {
      var inputs = {};
      fields.forEach(function (field) {
        inputs[field.name] = field.value === "" ? NaN : field.value * field.dataset.size;
      });
      outputs.forEach(function (output) {
        var number = worked(output.dataset.formula, inputs);
        output.value = shown(number, output.dataset.quantity);
        output.dataset.number = number;
      });
    }

    fields.forEach(function (field) {
      var slider = field.closest(".pb-field").querySelector("[type=range]");
      var low = Number(field.min), high = Number(field.max), step = field.dataset.step;
      function slid() {
        var share = slider.value / slider.max;
        var number = step === "powers" ? low * Math.pow(high / low, share) : low + (high - low) * share;
        return step === "whole" ? Math.round(number) : Number(number.toPrecision(3));
      }
      function follow() {
        var share = step === "powers"
          ? Math.log(field.value / low) / Math.log(high / low) : (field.value - low) / (high - low);
        slider.value = share * slider.max;
        slider.setAttribute("aria-valuetext", field.value);
      }
      slider.addEventListener("input", function () {
        field.value = slid();
        slider.setAttribute("aria-valuetext", field.value);
        calculate();
      });
      field.addEventListener("input", function () { follow(); calculate(); });
      follow();
    });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    form.hidden = false;
    calculate();
  }

  document.querySelectorAll("[data-calculator] form").forEach(Calculator);
})();
