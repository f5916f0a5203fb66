// The slider of a prediction: it sets the number in the field, and goes where a number was typed. Pages
// that have one load this; without it, the field is there.
(function () {
  "use strict";

  const book = window.proofbook;
  const { numbers, printed } = book;

  book.slider = function (q, { dataset, firstElementChild: range }) {
    const [low, high] = [Number(dataset.low), Number(dataset.high)];
    const isByRatio = dataset.logarithmic !== undefined;
    const { number, within } = q.key[0].dataset;
    // Where only one whole number is right, each can be set.
    const isWhole = !Number(within) && [low, high, number].every((one) => Number.isInteger(one / q.scale));
    const numSteps = isWhole && !isByRatio ? (high - low) / q.scale : 100;
    const tell = () => range.setAttribute("aria-valuetext", `${q.field.value} ${q.unit}`);
    range.max = numSteps;
    range.value = numSteps / 2;
    q.field.addEventListener("input", () => {
      const [typed] = numbers(q.field.value, q);
      const isSet = isByRatio ? typed > 0 : typed !== undefined;
      range.toggleAttribute("data-set", isSet);
      if (!isSet) return;
      range.value = numSteps * (isByRatio ? Math.log(typed / low) / Math.log(high / low) : (typed - low) / (high - low));
      tell();
    });
    range.addEventListener("input", () => {
      range.dataset.set = ""; // until then it shows no answer
      const share = range.value / numSteps;
      const at = (isByRatio ? low * Math.pow(high / low, share) : low * (1 - share) + high * share) / q.scale;
      q.field.value = isWhole ? Math.round(at) : printed(at, 2);
      tell();
    });
  };
})();
