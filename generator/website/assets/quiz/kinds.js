// The kinds of questions: how each is read from its form, put back, and compared with its key.
(function () {
  const book = window.proofbook;
  const { say, all } = book;
  const asking = document.querySelector("[data-asking]").dataset.asking;
  const words = Object.assign(book.words, JSON.parse(asking));

  const place = (element) => Number(element.dataset.position);
  const printed = (number, digits) =>
    Number(number.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 });

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
      q.asks = q.form.textContent.toLowerCase();
      if (ends) ends.firstElementChild.hidden = false;
      q.wake = (then) =>
        book.load("typing", () => {
          if (book.typing && !q.isAwake) book.typing(q, ends);
          q.isAwake = Boolean(book.typing);
          if (then) then();
        });
      ["pointerdown", "focusin", "input"].forEach((name) => q.form.addEventListener(name, () => q.isAwake || q.wake()));
    },
    // In base units, the reading that the key knows before others; a shape as it was typed.
    read: (q) => {
      const text = q.field.value.trim().slice(0, 100);
      const shape = q.key[0].dataset.words;
      if (shape) return /\d/.test(text) && (/\d\D+\d/.test(text) || !/\d\D+\d/.test(shape)) ? text : null;
      const meant = book.numbers(text, q);
      return [...meant.filter((number) => q.key.some((one) => isWithin(one, number))), ...meant, null][0];
    },
    // Whether MB was typed and MiB would be right; readers may mean either.
    isUnclear: (q) => {
      const { key, field, unit, scale } = q;
      const isRight = (how) => book.numbers(field.value, how).some((one) => isWithin(key[0], one));
      return !key[0].dataset.words && !isRight(q) && isRight({ unit, scale, isLoose: true });
    },
    put: (q, answer) => {
      q.field.value = typeof answer === "number" ? printed(answer / q.scale, 12) : answer;
      q.wake();
    },
    judge: (q, answer) => {
      const found = q.key.find((one) => isWithin(one, answer));
      const isNumber = !found && typeof answer === "number";
      const way = answer < q.key[0].dataset.number ? words.too_low : words.too_high;
      const share = q.isShare ? say("as_share", { n: printed(answer * 100, 6) }) : "";
      return { isRight: found === q.key[0], about: found ? [found] : [], hint: isNumber ? `${way}.` : share };
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
      // As it was typed, with the unit that was meant.
      const text = q.isShare ? printed(answer / q.scale, 6) : q.field.value.trim().replace(/^-/, "−");
      const yours = (/\d$/.test(text) ? `${text} ${q.unit}` : text).trim().replace(/\s+%/, "%");
      const said = say("you_said", { yours, shown });
      // Right to the last digit that is shown.
      const [, digits] = /\.(\d+)/.exec(shown) || [, ""];
      const isExact = isRight && (answer / q.scale).toFixed(digits.length) === (key / q.scale).toFixed(digits.length);
      const off = Number.isFinite(ratio) && !isExact;
      return {
        isRight,
        about,
        lead: words[isExact ? "exact" : isRight || Math.abs(ratio - 1) < 0.05 ? "close" : ratio < 10 ? "not_close" : "far"],
        hint: said + (off ? " " + say(isFar ? "by_factor" : "by_share", { way, by }) : ""),
      };
    },
  });

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

  Object.assign(book, { place, chosen, ordered, KINDS, printed, spelled });
})();
