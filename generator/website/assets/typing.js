// What a reader types: numbers in all usual spellings, and the slider of a prediction, which sets the
// number in the field and goes where a number was typed. Loaded once a reader is about to answer.
(function () {
  "use strict";

  const book = window.proofbook;
  const { words, printed } = book;

  // One spelling of a unit: µs, μs, usec and microseconds are one, and so are MiB, mib and mebibytes.
  const unified = (unit) =>
    words.spellings.reduce((text, [from, to]) => text.replace(new RegExp(from, "g"), to), unit.toLowerCase());
  const UNIT = /^([kmgt]i?|[mun])?([sb])(\/s)?$/;

  // How many seconds or bytes one of a unit is: a millisecond, or a MB of 1,000² and a MiB of 1,024².
  const sizeOf = ([letter = "_", isBinary], of) =>
    of === "s" ? 1e-3 ** "_mun".indexOf(letter) : (isBinary ? 1024 : 1000) ** "_kmgt".indexOf(letter);

  // How many base units one of a typed unit is; NaN where the question asks for another quantity.
  function scaleOf(typed, { unit, scale, isLoose, asks }) {
    const [given, asked] = [unified(typed), unified(unit)];
    if (!given || given === asked) return scale;
    // After a count, what the question counts; `m` may be milli, and is no number of these.
    const noun = typed.trim().toLowerCase().replace(/s$/, "");
    const isNoun = given === "×" || (noun.length > 2 && asks?.includes(noun) && !UNIT.test(given));
    if (!asked || words.counts[asked]) return words.counts[given] || (asked || !isNoun ? NaN : scale);
    const [, many, rest] = /^(k$|thousand|million|billion|trillion)(.*)/.exec(given) || [];
    if (many) return rest || asked === "b" ? words.counts[many] * scaleOf(rest, { unit, scale }) : NaN;
    const [one, other] = [given, asked].map((text) => UNIT.exec(text) || []);
    const isAlike = other[2] && one[2] === other[2] && one[3] === other[3];
    const meant = one[1] ? one[1] + (isLoose ? "i" : "") : "";
    return isAlike ? (scale * sizeOf(meant, one[2])) / sizeOf(other[1] || "", other[2]) : NaN;
  }

  // The numbers that a text may mean, in base units and likeliest first: a point or a comma may part
  // decimals, and the other one thousands, which come by three. `× 10⁻⁶` is `e-6`.
  function numbers(text, q) {
    const plain = text
      .replace(new RegExp(words.around, "gi"), "")
      .trim()
      .replace(/^[x×]\s*(\d.*)/i, "$1×")
      .replace(/(\d\s*)M$/, q.unit === "M" ? "$1" : "$1million")
      .replace(/[⁰¹²³⁴-⁹⁻]+/, (power) => `^${power.normalize("NFKC")}`)
      .replace(/[−–]/g, "-")
      .replace(/\s*[×x*·]\s*10(?:\^|\*\*)/, "e");
    const [, top, bottom] = /^(\d+)\s*\/\s*(\d+)$/.exec(plain) || [];
    q.isShare = +bottom > 0 && q.unit === "%";
    if (+bottom && /^(%|times)?$/.test(q.unit)) return [top / bottom];
    const found = /^\s*([+-]?[\d.,\s'’_]*\d[.,]?(?:e[+-]?\d+)?)\s*(\D.*)?$/i.exec(plain);
    // Spaces part thousands too.
    if (!found || /[\s'’_](?!\d{3}(\D|$))/.test(found[1])) return [];
    const bare = found[1].replace(/[\s'’_]/g, "");
    const read = (thousands, decimals) =>
      (/^[+-]?[0.,]/.test(bare) && bare.includes(thousands)) ||
      bare.split(thousands).slice(1).some((part) => !/^\d{3}(\D|$)/.test(part))
        ? NaN
        : Number(bare.split(thousands).join("").replace(decimals, ".")) * scaleOf(found[2] || "", q);
    const meant = [read(",", "."), read(".", ",")].filter(Number.isFinite);
    // What is asked in per cent may be typed as a share, 0.875, unless the answer is less than one.
    q.isShare = q.unit === "%" && !found[2] && Math.abs(meant[0]) < q.scale && q.key?.[0].dataset.number >= q.scale;
    return q.isShare ? meant.map((one) => one / q.scale) : meant;
  }

  book.numbers = numbers;

  book.typing = function (q, ends) {
    if (!ends) return;
    const { dataset, firstElementChild: range } = ends;
    const [low, high] = [Number(dataset.low), Number(dataset.high)];
    const isByRatio = dataset.logarithmic !== undefined;
    const { number, within } = q.key[0].dataset;
    // Where only one whole number is right, each can be set.
    const isWhole = !Number(within) && [low, high, number].every((one) => Number.isInteger(one / q.scale));
    const numSteps = isWhole && !isByRatio ? (high - low) / q.scale : 100;
    const share = range.value / 100; // where it was put while this was on its way
    const tell = () => range.setAttribute("aria-valuetext", `${q.field.value} ${q.unit}`);
    range.max = numSteps;
    range.value = share * numSteps;
    q.field.addEventListener("input", () => {
      const [typed] = numbers(q.field.value, q);
      const isSet = isByRatio ? typed > 0 : typed !== undefined;
      range.toggleAttribute("data-set", isSet);
      if (!isSet) return;
      range.value = numSteps * (isByRatio ? Math.log(typed / low) / Math.log(high / low) : (typed - low) / (high - low));
      tell();
    });
    const slide = () => {
      range.dataset.set = ""; // until then it shows no answer
      const share = range.value / numSteps;
      const at = (isByRatio ? low * Math.pow(high / low, share) : low * (1 - share) + high * share) / q.scale;
      q.field.value = isWhole ? Math.round(at) : printed(at, 2);
      tell();
    };
    range.addEventListener("input", slide);
    range.addEventListener("click", slide); // where it stands already
    const touched = q.field.value && document.activeElement !== range ? q.field : share !== 0.5 && range;
    if (touched) touched.dispatchEvent(new Event("input"));
  };
})();
