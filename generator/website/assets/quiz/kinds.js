// The kinds of questions: how each is read from its form, put back, and compared with its key.
(function () {
  const book = window.proofbook;
  const { say, all } = book;
  const asking = document.querySelector("[data-asking]").dataset.asking;
  const words = Object.assign(book.words, JSON.parse(asking));

  const place = (element) => Number(element.dataset.position);
  const printed = (number, digits) =>
    Number(number.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 });

  // ——— What a reader typed ———

  // One spelling of a unit: µs, μs, usec and microseconds are one, and so are MiB, mib and mebibytes.
  const SPELLINGS = [
    [/[\s-]/g, ""], [/[µμ]|micro/g, "u"], [/milli(?!on)/g, "m"], [/nano/g, "n"],
    [/(ki|me|gi|te)bi/g, (word) => `${word[0]}i`], [/(kilo|mega|giga|tera)/g, (word) => word[0]],
    [/sec(onds?|s)?/g, "s"], [/bytes?/g, "b"], [/percent|pct/g, "%"],
    [/times|fold|^x$/g, "×"], [/per|p(?=s$)/g, "/"],
  ];
  const unified = (unit) =>
    SPELLINGS.reduce((text, [from, to]) => text.replace(from, to), unit.toLowerCase());
  const COUNTS = { k: 1e3, thousand: 1e3, m: 1e6, million: 1e6, bn: 1e9, billion: 1e9, trillion: 1e12 };

  // How many seconds or bytes one of a unit is: a millisecond, or a MB of 1,000² and a MiB of 1,024².
  const sizeOf = ([letter = "_", isBinary], of) =>
    of === "s" ? 1e-3 ** "_mun".indexOf(letter) : (isBinary ? 1024 : 1000) ** "_kmgt".indexOf(letter);

  // How many base units one of a typed unit is; NaN where the question asks for another quantity.
  function scaleOf(typed, { unit, scale, isLoose }) {
    const [given, asked] = [unified(typed), unified(unit)];
    if (!given || given === asked) return scale;
    if (!asked || COUNTS[asked]) return COUNTS[given] || NaN;
    const [, many, rest] = /^(k$|thousand|million|billion|trillion)(.*)/.exec(given) || [];
    if (many) return rest || asked === "b" ? COUNTS[many] * scaleOf(rest, { unit, scale }) : NaN;
    const [one, other] = [given, asked].map((text) => /^([kmgt]i?|[mun])?([sb])(\/s)?$/.exec(text) || []);
    const isAlike = other[2] && one[2] === other[2] && one[3] === other[3];
    const meant = one[1] ? one[1] + (isLoose ? "i" : "") : "";
    return isAlike ? (scale * sizeOf(meant, one[2])) / sizeOf(other[1] || "", other[2]) : NaN;
  }

  // The numbers that a text may mean, in base units and likeliest first: a point or a comma may part
  // decimals, and the other one thousands, which come by three. `× 10⁻⁶` is `e-6`.
  function numbers(text, q) {
    const plain = text
      .replace(/^\s*[~≈]|\.\s*$/g, "")
      .replace(/[⁰¹²³⁴-⁹⁻]+/, (power) => `^${power.normalize("NFKC")}`)
      .replace(/[−–]/g, "-")
      .replace(/\s*[×x*·]\s*10(?:\^|\*\*)/, "e");
    const found = /^\s*([+-]?[\d.,\s'’_]*\d[.,]?(?:e[+-]?\d+)?)\s*(\D.*)?$/i.exec(plain);
    if (!found) return [];
    const bare = found[1].replace(/[\s'’_]/g, "");
    const read = (thousands, decimals) =>
      (/^[+-]?0/.test(bare) && bare.includes(thousands)) ||
      bare.split(thousands).slice(1).some((part) => !/^\d{3}(\D|$)/.test(part))
        ? NaN
        : Number(bare.split(thousands).join("").replace(decimals, ".")) * scaleOf(found[2] || "", q);
    return [read(",", "."), read(".", ",")].filter(Number.isFinite);
  }

  // A shape in any spelling, `50 × 20`, `50x20`, `[50, 20]`, read in both ways; or a word.
  function spelled(text) {
    if (!/\d/.test(text)) return [text.trim().toLowerCase()];
    const read = (by) => text.split(by).map((part) => part.replace(/\D/g, "")).filter(Boolean).join();
    return [read(/[x×*;]|,\s/i), read(/[x×*;,]|\s(?=\d)/i)];
  }

  function isWithin(answer, typed) {
    const { number, within, words } = answer.dataset;
    if (words) return spelled(typed).includes(spelled(words)[0]);
    return Math.abs(typed - number) <= within * (1 + 1e-9) + 1e-12 * Math.abs(typed);
  }

  // ——— The kinds ———
  //
  // `read` takes the answer from the form and `put` puts it back; `judge` holds it against the key
  // and says which explanations are about it; `stands` says of one option how it stood.

  const chosen = {
    read: (q) => {
      const picked = q.options.filter((one) => one.querySelector("input").checked).map(place);
      return q.kind === "several" && picked.length ? picked : picked.length ? picked[0] : null;
    },
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
      const isMissed = q.kind === "several" && verdict === "right" && answer !== null;
      const note = isPicked ? words.chosen : isMissed ? words.missed : "";
      return { note, verdict: isPicked || verdict === "right" ? verdict : "" };
    },
  };

  const ordered = {
    start: (q) =>
      q.options.forEach((piece) => {
        const name = piece.querySelector(".pb-piece").textContent;
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
      q.form.querySelector(".pb-pieces").append(...answer.map((at) => q.option(at) || ""));
    },
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
    judge: (q, answer) => misplaced(q, answer, q.key.map((one) => Number(one.dataset.mate)), ".pb-beside"),
    stands: (q, answer, option, { mate }, position) => ({
      note: "",
      verdict: !answer || answer[position] === Number(mate) ? "right" : "wrong",
    }),
  };

  // The first thing that stands where another belongs, with what is true of it.
  function misplaced(q, answer, right, name) {
    const first = answer.findIndex((one, at) => one !== right[at]);
    if (first < 0) return { isRight: true, about: q.key };
    const about = q.key[right.indexOf(answer[first])];
    const piece = about.querySelector(name).textContent;
    return { isRight: false, about: [about], hint: say("misplaced", { piece }) };
  }

  const typed = {
    start: (q) => {
      const unit = q.form.querySelector(".pb-unit");
      const ends = q.form.querySelector("[data-low]");
      q.field = q.form.querySelector(".pb-number-field");
      q.scale = Number(q.field.dataset.scale);
      q.unit = unit ? unit.textContent : "";
      if (ends) slide(q, ends);
    },
    // In base units, the reading that the key knows before others; words as they were typed.
    read: (q) => {
      const text = q.field.value.trim().slice(0, 100);
      if (q.key[0].dataset.words) return text || null;
      const meant = numbers(text, q);
      const known = meant.filter((number) => q.key.some((one) => isWithin(one, number)));
      return known.concat(meant, null)[0];
    },
    // Whether MB was typed and MiB would be right; readers may mean either.
    isUnclear: (q) => {
      const { key, field, unit, scale } = q;
      const isRight = (how) => numbers(field.value, how).some((one) => isWithin(key[0], one));
      return !key[0].dataset.words && !isRight(q) && isRight({ unit, scale, isLoose: true });
    },
    put: (q, answer) => {
      q.field.value = typeof answer === "number" ? printed(answer / q.scale, 6) : answer;
    },
    judge: (q, answer) => {
      const found = q.key.find((one) => isWithin(one, answer));
      const isNumber = !found && typeof answer === "number";
      const way = answer < q.key[0].dataset.number ? words.too_low : words.too_high;
      return { isRight: found === q.key[0], about: found ? [found] : [], hint: isNumber ? `${way}.` : "" };
    },
  };

  // A prediction is not graded: it says how far off it was.
  const predicted = Object.assign({}, typed, {
    judge: (q, answer) => {
      const { isRight, about } = typed.judge(q, answer);
      const key = Number(q.key[0].dataset.number);
      const ratio = Math.max(answer / key, key / answer);
      const isFar = ratio >= 2;
      const by = isFar ? printed(ratio, 2) : printed(Math.abs(answer / key - 1) * 100, 2);
      const way = words[answer < key ? "too_low" : "too_high"];
      const shown = q.key[0].querySelector(".pb-said").textContent;
      const said = say("you_said", { yours: `${printed(answer / q.scale, 3)} ${q.unit}`.trim(), shown });
      const isExact = printed(answer / q.scale, 3) === printed(key / q.scale, 3);
      const off = Number.isFinite(ratio) && !isExact;
      return {
        isRight,
        about,
        lead: words[isExact ? "exact" : isRight ? "close" : ratio < 10 ? "not_close" : "far"],
        hint: said + (off ? " " + say(isFar ? "by_factor" : "by_share", { way, by }) : ""),
      };
    },
  });

  function slide(q, ends) {
    const { low, high, logarithmic } = ends.dataset;
    const range = ends.firstElementChild;
    range.hidden = false;
    q.field.addEventListener("input", () => {
      const [number] = numbers(q.field.value, q);
      const isSet = logarithmic === undefined ? number !== undefined : number > 0;
      range.toggleAttribute("data-set", isSet);
      if (!isSet) return;
      range.value = 100 * (logarithmic === undefined ? (number - low) / (high - low) : Math.log(number / low) / Math.log(high / low));
      range.setAttribute("aria-valuetext", `${q.field.value} ${q.unit}`);
    });
    range.addEventListener("input", () => {
      range.dataset.set = ""; // until then it shows no answer
      const share = range.value / 100;
      const at = logarithmic === undefined ? low * (1 - share) + high * share : low * Math.pow(high / low, share);
      q.field.value = printed(at / q.scale, 2);
      range.setAttribute("aria-valuetext", `${q.field.value} ${q.unit}`);
    });
  }

  const KINDS = {
    choice: chosen,
    several: chosen,
    faulty_line: chosen,
    order: ordered,
    match: matched,
    number: typed,
    complete: typed,
    predict: predicted,
  };

  Object.assign(book, { place, chosen, ordered, KINDS });
})();
