// Questions. Each form of a page becomes one that answers: nothing is given away before a reader
// commits, and then every answer explains itself. The key is read from the details below the form,
// which readers without this script open instead.
(function () {
  "use strict";

  const book = window.proofbook;
  const { words, store, say, hidden } = book;
  const SURE = 2;
  const GUESS = 0;
  const NUM_KEPT = 20; // attempts of one item

  // When an answered item comes back:
  //
  //           sure              fairly sure, or unsaid     a guess
  //   right   after the next    after the next             once more in this sitting,
  //           interval          interval                   then after a day
  //   wrong   after a week      once more in this sitting, once more in this sitting,
  //                             then after a day           then after a day
  //
  // Whoever answers rightly before the day keeps it. Days end at the reader's own midnight.
  const INTERVALS = [1, 3, 7, 21, 60];
  const A_WEEK = 7;

  function inDays(num, now) {
    const day = new Date(now);
    day.setHours(0, 0, 0, 0);
    day.setDate(day.getDate() + num);
    return day.getTime();
  }

  function schedule(before, isRight, confidence, isGraded, now) {
    const { step, due, again } = before || { step: 0, due: 0, again: false };
    if (!isRight && confidence === SURE) return { step: 0, due: inDays(A_WEEK, now), again: false };
    if (isGraded && (!isRight || (confidence === GUESS && !again)))
      return { step: 0, due: now, again: true };
    if (isRight && due > now) return { step: step, due: due, again: false };
    const next = isRight ? Math.min(step, INTERVALS.length - 1) : 0;
    return { step: next + 1, due: inDays(INTERVALS[next], now), again: false };
  }

  function made(name, css, text) {
    const element = document.createElement(name);
    if (css) element.className = css;
    if (text) element.textContent = text;
    return element;
  }

  function button(text, act) {
    const element = made("button", "pb-button", text);
    element.type = "button";
    element.addEventListener("click", act);
    return element;
  }

  const all = (within, selector) => Array.from(within.querySelectorAll(selector));
  const place = (element) => Number(element.dataset.position);
  const copies = (element) => Array.from(element.cloneNode(true).childNodes);
  const shown = (number, digits) =>
    Number(number.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 });

  // ——— What a reader typed ———

  // The numbers that a text may mean, likeliest first: `1,5` and `1.234,5` are read as well as
  // `1,234.5`; a lone comma before three digits parts thousands first.
  function numbers(text, unit) {
    let bare = text.replace(/[\s\u00a0\u202f'’_]/g, "").replace(/[−–]/g, "-");
    const label = unit.replace(/\s/g, "");
    if (label && bare.toLowerCase().endsWith(label.toLowerCase())) bare = bare.slice(0, -label.length);
    const isTyped = /^[+-]?(\d[\d.,]*|[.,]\d+)(e[+-]?\d+)?$/i.test(bare);
    if (!isTyped) return [];
    const point = bare.replace(/,/g, "");
    const comma = bare.replace(/\./g, "").replace(",", ".");
    const isThousands = /^[+-]?[1-9]\d{0,2}(,\d{3})+(\.|e|$)/i.test(bare);
    const isPoint = bare.lastIndexOf(".") > bare.lastIndexOf(",") && bare.split(".").length < 3;
    const order = isThousands || isPoint ? [point, comma] : [comma, point];
    return order.map(Number).filter(Number.isFinite);
  }

  // A shape in any spelling, `50 × 20`, `[50, 20]`; or a word.
  function spelled(text) {
    if (!/\d/.test(text)) return [text.trim().toLowerCase()];
    const inside = text.replace(/[\s\u00a0\u202f]*[x×*;][\s\u00a0\u202f]*/gi, "|").replace(/[()[\]]/g, "");
    const joined = (parts) => parts.map((part) => part.replace(/\D/g, "")).filter(Boolean).join(" × ");
    return [joined(inside.split(/\||,?\s+/)), joined(inside.split(/[|,\s]+/))];
  }

  // ——— The kinds: what was answered, how it stands against the key, and how it is put back ———

  // One or several options, or lines of code.
  const chosen = {
    read: (q) => {
      const picked = q.options.filter((one) => one.querySelector("input").checked).map(place);
      if (!picked.length) return null;
      return q.kind === "several" ? picked : picked[0];
    },
    put: (q, answer) => {
      const picked = [].concat(answer);
      q.options.forEach((one) => {
        one.querySelector("input").checked = answer !== null && picked.includes(place(one));
      });
    },
    judge: (q, answer) => {
      const picked = [].concat(answer);
      const right = q.key.filter((one) => one.dataset.verdict === "right").map(place);
      const mistaken = picked.filter((one) => !right.includes(one));
      const isRight = !mistaken.length && picked.length === right.length;
      const lacks = !mistaken.length && !isRight ? words.lacks : "";
      return { isRight: isRight, hint: lacks, about: picked.map((one) => q.explained(one)) };
    },
    tell: (q, answer, isOver) => {
      const picked = [].concat(answer);
      q.options.forEach((option) => {
        const isPicked = picked.includes(place(option));
        if (isOver || isPicked) q.explain(option, isPicked ? words.chosen : "");
      });
    },
  };

  const ordered = {
    start: (q) => {
      q.options.forEach((piece) => {
        const name = piece.textContent.trim();
        const move = (step) => {
          const other = step < 0 ? piece.previousElementSibling : piece.nextElementSibling;
          if (!other || q.isDone) return;
          // The neighbour moves, so that focus stays on the button.
          if (step < 0) piece.after(other);
          else piece.before(other);
          const at = ordered.read(q).indexOf(place(piece)) + 1;
          q.status.textContent = say("moved", { piece: name, n: at, m: q.options.length });
        };
        [[-1, "up", "↑"], [1, "down", "↓"]].forEach(([step, way, arrow]) => {
          const made = button(arrow, () => move(step));
          made.setAttribute("aria-label", say(way, { piece: name }));
          piece.append(made);
        });
      });
    },
    read: (q) => all(q.form, ".pb-pieces > li").map(place),
    put: (q, answer) => {
      const list = q.form.querySelector(".pb-pieces");
      (answer || q.options.map(place)).forEach((at) => list.append(q.option(at) || ""));
    },
    judge: (q, answer) => {
      const right = q.key.map(place);
      const first = answer.findIndex((one, at) => one !== right[at]);
      const misplaced = first < 0 ? null : q.explained(answer[first]);
      const values = misplaced && { piece: misplaced.querySelector(".pb-said").textContent };
      return {
        isRight: first < 0,
        hint: misplaced ? say("misplaced", values) : "",
        about: [misplaced || q.key[0]],
      };
    },
    tell: (q, answer, isOver) => {
      if (!isOver) return;
      const right = q.key.map(place);
      ordered.put(q, right);
      right.forEach((one, at) => {
        const was = answer ? answer.indexOf(one) : at;
        const note = was === at ? "" : say("was_at", { n: was + 1 });
        q.explain(q.option(one), note, was === at ? "right" : "wrong");
      });
    },
  };

  const matched = {
    read: (q) => {
      const picked = q.options.map((one) => one.querySelector("select").value);
      return picked.includes("") ? null : picked.map(Number);
    },
    put: (q, answer) => {
      q.options.forEach((one, at) => {
        one.querySelector("select").value = answer ? String(answer[at]) : "";
      });
    },
    judge: (q, answer) => {
      const first = q.key.findIndex((one, at) => Number(one.dataset.mate) !== answer[at]);
      const taken = q.key.find((one) => Number(one.dataset.mate) === answer[first]);
      const values = taken && {
        left: q.key[first].querySelector(".pb-said").textContent,
        right: taken.querySelector(".pb-beside").textContent,
      };
      return {
        isRight: first < 0,
        hint: taken ? say("mismatched", values) : "",
        about: [taken || q.key[0]],
      };
    },
    tell: (q, answer, isOver) => {
      if (!isOver) return;
      q.options.forEach((option, at) => {
        const isRight = answer && Number(q.key[at].dataset.mate) === answer[at];
        q.explain(option, "", !answer || isRight ? "right" : "wrong");
      });
    },
  };

  const typed = {
    start: (q) => {
      q.field = q.form.querySelector(".pb-number-field");
      q.scale = Number(q.field.dataset.scale);
      const unit = q.form.querySelector(".pb-unit");
      q.unit = unit ? unit.textContent : "";
      const ends = q.form.querySelector("[data-low]");
      if (ends) slide(q, ends);
    },
    // In base units, the reading that the key knows before others; words as they were typed.
    read: (q) => {
      const text = q.field.value.trim();
      if (!text) return null;
      if (q.key[0].dataset.words) return text.slice(0, 100);
      const meant = numbers(text, q.unit).map((number) => number * q.scale);
      const known = meant.find((number) => q.key.some((one) => isWithin(one, number)));
      return known === undefined ? (meant.length ? meant[0] : null) : known;
    },
    put: (q, answer) => {
      const isNumber = typeof answer === "number";
      q.field.value = answer === null ? "" : isNumber ? shown(answer / q.scale, 6) : answer;
      q.field.readOnly = q.isDone;
    },
    judge: (q, answer) => {
      const found = q.key.find((one) => isWithin(one, answer));
      const isRight = found === q.key[0];
      const key = Number(q.key[0].dataset.number);
      const isNumber = typeof answer === "number";
      const way = isNumber && !found ? words[answer < key ? "too_low" : "too_high"] : "";
      return { isRight: isRight, hint: way, about: found ? [found] : [] };
    },
    tell: (q, answer, isOver) => {
      if (isOver) q.openKey();
    },
  };

  function isWithin(one, answer) {
    if (one.dataset.words) return spelled(answer).includes(spelled(one.dataset.words)[0]);
    const off = Math.abs(answer - Number(one.dataset.number));
    return off <= Number(one.dataset.within) * (1 + 1e-9) + 1e-12 * Math.abs(answer);
  }

  // A prediction is not graded: it says how far off it was.
  const predicted = Object.assign({}, typed, {
    judge: (q, answer) => {
      const key = Number(q.key[0].dataset.number);
      const slip = q.key.slice(1).find((one) => isWithin(one, answer));
      const isClose = isWithin(q.key[0], answer);
      const ratio = key > 0 && answer > 0 ? Math.max(key / answer, answer / key) : 0;
      const values = {
        yours: `${shown(answer / q.scale, 3)} ${q.unit}`.trim(),
        shown: q.key[0].querySelector(".pb-said").textContent,
        percent: shown(Math.abs(answer / key - 1) * 100, 2),
        times: shown(ratio, 2),
      };
      const way = answer < key ? "below" : "above";
      const far = !ratio ? "no_ratio" : answer === key ? "exactly" : (ratio < 2 ? "percent_" : "times_") + way;
      const lead = isClose ? words.close : ratio >= 10 ? words.far : words.not_close;
      return {
        isRight: isClose,
        lead: lead,
        hint: say("you_said", values) + " " + say(far, values),
        about: slip && !isClose ? [slip] : [],
      };
    },
  });

  function slide(q, ends) {
    const low = Number(ends.dataset.low);
    const high = Number(ends.dataset.high);
    const isLog = "logarithmic" in ends.dataset && low > 0;
    const range = made("input", "pb-slider");
    const steps = 100;
    Object.assign(range, { type: "range", min: 0, max: steps });
    range.value = steps / 2;
    range.setAttribute("aria-label", words.slider);
    range.setAttribute("aria-valuetext", words.unset);
    const told = () => range.setAttribute("aria-valuetext", `${q.field.value} ${q.unit}`.trim());
    range.addEventListener("input", () => {
      const share = range.value / steps;
      const at = isLog ? low * Math.pow(high / low, share) : low + share * (high - low);
      if (q.isDone) return;
      q.field.value = Number((at / q.scale).toPrecision(2));
      told();
    });
    q.field.addEventListener("input", () => {
      const [number] = numbers(q.field.value, q.unit).map((one) => one * q.scale);
      const share = isLog ? Math.log(number / low) / Math.log(high / low) : (number - low) / (high - low);
      if (!Number.isFinite(share)) return;
      range.value = share * steps;
      told();
    });
    ends.prepend(range);
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

  // ——— One question ———

  class Question {
    constructor(form) {
      const box = form.closest(".pb-question");
      const { item, digest, kind, attempts } = form.dataset;
      Object.assign(this, { form: form, box: box, id: item, digest: digest, kind: kind });
      this.numAttempts = Number(attempts);
      this.isGraded = kind !== "predict";
      this.how = KINDS[kind];
      this.options = all(form, ".pb-option");
      this.status = form.querySelector(".pb-status");
      this.check = form.querySelector(".pb-check");
      this.answers = box.querySelector(".pb-answer");
      this.key = all(box, ".pb-answers > li");
      this.hints = all(box, ".pb-hint");
      this.after = all(document, "[data-after]").filter((one) => one.dataset.after === item);
      this.isDone = false;
      this.tries = 0;
      this.prepare();
      if (this.how.start) this.how.start(this);
      if (!form.closest("[data-recall]")) this.restore();
    }

    prepare() {
      const actions = this.form.querySelector(".pb-actions");
      this.hintButton = button(words.show_hint, () => this.hint());
      this.giveUp = button(words.give_up, () => this.end(null));
      this.retry = button(words.answer_again, () => this.clear(true));
      this.retry.hidden = true;
      this.check.hidden = this.check.disabled = false;
      this.answers.hidden = true;
      this.hints.forEach((one) => (one.hidden = true));
      this.after.forEach((one) => (one.hidden = true));
      if (this.hints.length) actions.append(this.hintButton);
      actions.append(this.giveUp, this.retry);
      if (this.isGraded) actions.before(this.confidences());
      this.form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (!this.isDone) this.commit();
      });
      // What is answered stays as it was answered; focus is not taken away.
      this.form.addEventListener("change", () => {
        if (this.isDone) this.how.put(this, this.kind === "order" ? this.key.map(place) : this.answer);
      });
    }

    confidences() {
      const set = made("fieldset", "pb-sure");
      set.append(made("legend", "", words.how_sure));
      [words.guess, words.fairly, words.sure].forEach((word, value) => {
        const label = made("label", "");
        const input = made("input", "");
        Object.assign(input, { type: "radio", name: `sure-${this.box.id}`, value: value });
        label.append(input, " ", word);
        set.append(label);
      });
      return set;
    }

    get confidence() {
      const input = this.form.querySelector(".pb-sure input:checked");
      return input ? Number(input.value) : null;
    }

    option(at) {
      return this.options.find((one) => place(one) === at);
    }

    explained(at) {
      return this.key.find((one) => place(one) === at);
    }

    // The explanation of an option, in its place.
    explain(option, note, verdict) {
      if (option.querySelector(".pb-revealed")) return;
      const key = this.explained(place(option));
      const word = key.querySelector(".pb-verdict-word");
      const beside = key.querySelector(".pb-beside");
      const text = option.querySelector("label > span, .pb-piece");
      const told = made("div", "pb-why pb-revealed");
      if (note) told.append(made("span", "pb-chosen", note), " ");
      if (word) told.append(word.cloneNode(true), " ");
      if (beside) told.append(beside.cloneNode(true), " ");
      told.append(...copies(key.querySelector(".pb-why")));
      option.dataset.verdict = verdict || key.dataset.verdict;
      option.append(told);
      if (!text) return;
      const opening = made("span", "pb-revealed");
      opening.append(...copies(key.querySelector(".pb-said")));
      text.hidden = true;
      text.after(opening);
    }

    hint() {
      const next = this.hints.find((one) => one.hidden);
      if (!next) return;
      next.hidden = false;
      next.open = true;
      const num = this.hints.filter((one) => !one.hidden).length;
      const inside = next.querySelector(".pb-inside").textContent;
      this.status.textContent = say("hint_of", { n: num, m: this.hints.length });
      this.status.append(hidden(" " + inside));
      if (num === this.hints.length) this.hintButton.setAttribute("aria-disabled", "true");
    }

    commit() {
      const answer = this.how.read(this);
      if (answer === null) {
        const isNumber = this.field && this.field.value.trim();
        this.status.textContent = isNumber ? words.no_number : words["pick_" + this.kind] || words.pick;
        return;
      }
      const { isRight } = this.how.judge(this, answer);
      if (isRight || this.tries + 1 >= this.numAttempts) return this.end(answer);
      this.keep(answer, false, false);
      this.tries += 1;
      this.how.tell(this, answer, false);
      this.say(answer, words.try_again);
    }

    // The last word on this question: right, out of attempts, or given up.
    end(answer) {
      if (this.isDone) return;
      const isRight = answer !== null && this.how.judge(this, answer).isRight;
      this.keep(answer, isRight, true);
      this.finish(answer);
      this.say(answer, "");
      this.form.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: this }));
    }

    finish(answer) {
      this.isDone = true;
      this.answer = answer;
      this.untell();
      this.how.put(this, answer);
      this.how.tell(this, answer, true);
      const explains = this.answers.querySelector(".pb-explains");
      if (explains && this.answers.hidden) {
        const told = made("div", "pb-explains pb-revealed");
        told.append(...copies(explains));
        this.status.after(told);
      }
      this.answers.dataset.told = "";
      this.check.setAttribute("aria-disabled", "true");
      const focused = document.activeElement;
      const sure = this.form.querySelector(".pb-sure");
      this.retry.hidden = false;
      if (focused === this.giveUp) this.retry.focus();
      [this.giveUp, this.hintButton].forEach((one) => (one.hidden = true));
      if (sure) sure.hidden = !sure.contains(focused);
      this.hints.forEach((one) => (one.hidden = false));
      this.after.forEach((one) => {
        one.hidden = false;
        one.open = true;
      });
      this.box.dataset.done = "";
    }

    openKey() {
      this.answers.hidden = false;
      this.answers.open = true;
    }

    untell() {
      all(this.box, ".pb-revealed").forEach((one) => one.remove());
      this.options.forEach((option) => {
        delete option.dataset.verdict;
        all(option, "[hidden]").forEach((one) => (one.hidden = false));
      });
    }

    // The verdict, and why; the same words are heard and seen.
    say(answer, more) {
      const { isRight, lead, hint, about } =
        answer === null ? { lead: words.given_up, about: [] } : this.how.judge(this, answer);
      const css = this.isGraded && answer !== null ? (isRight ? "pb-right" : "pb-wrong") : "";
      this.status.textContent = "";
      this.status.append(made("strong", css, lead || (isRight ? words.right : words.wrong)), " ");
      if (hint) this.status.append(hint, " ");
      about.forEach((one) => {
        const why = one.querySelector(".pb-why");
        const isInKey = this.answers.open && one === this.key[0];
        if (isInKey || this.box.querySelector(".pb-option .pb-revealed")) this.status.append(hidden(why.textContent + " "));
        else this.status.append(...copies(why), " ");
      });
      if (more) this.status.append(more);
    }

    keep(answer, isRight, isOver) {
      const now = Date.now();
      const before = store.get(this.id);
      const isSame = before && before.digest === this.digest;
      const attempts = isSame ? before.attempts : [];
      attempts.push({
        at: now,
        answer: answer,
        is_right: isRight,
        confidence: this.confidence,
        gave_up: answer === null,
        nth: this.tries + 1,
      });
      if (!this.tries) this.first = { isRight: isRight, confidence: this.confidence };
      const { isRight: wasRight, confidence } = this.first || { isRight: false, confidence: null };
      const next = isOver
        ? schedule(isSame && before.done ? before : null, wasRight, confidence, this.isGraded, now)
        : { step: isSame ? before.step : 0, due: isSame ? before.due : 0, again: isSame && before.again };
      const record = {
        digest: this.digest,
        kind: this.kind,
        attempts: attempts.slice(0, 1).concat(attempts.slice(1).slice(1 - NUM_KEPT)),
        done: isOver || Boolean(isSame && before.done),
      };
      if (!store.put(this.id, Object.assign(record, next))) this.note();
      book.mark();
    }

    // Said once a page: nothing is kept, and the page works all the same.
    note() {
      if (document.querySelector(".pb-unkept")) return;
      this.box.append(made("p", "pb-aside pb-unkept", words.unkept));
    }

    restore() {
      const before = store.get(this.id);
      if (!before) return;
      if (before.digest !== this.digest) {
        this.status.textContent = words.changed;
        return;
      }
      if (!before.done) return;
      const { answer } = before.attempts[before.attempts.length - 1];
      this.how.put(this, answer);
      const isHeld = this.field
        ? typeof answer === (this.key[0].dataset.words ? "string" : "number")
        : String(this.how.read(this)) === String(answer);
      if (answer !== null && !isHeld) return this.clear(false); // no answer of this kind
      this.finish(answer);
      this.say(answer, "");
      this.status.prepend(words.restored + " ");
    }

    clear(isAsked) {
      this.untell();
      this.isDone = false;
      this.tries = 0;
      this.first = null;
      this.how.put(this, null);
      all(this.form, ".pb-sure").forEach((one) => (one.hidden = false));
      all(this.form, ".pb-sure input").forEach((one) => (one.checked = false));
      this.answers.hidden = true;
      this.answers.open = false;
      delete this.answers.dataset.told;
      delete this.box.dataset.done;
      this.hints.forEach((one) => (one.hidden = true));
      [this.check, this.hintButton].forEach((one) => one.removeAttribute("aria-disabled"));
      [this.giveUp, this.hintButton].forEach((one) => (one.hidden = false));
      this.after.forEach((one) => (one.open = false));
      this.status.textContent = isAsked ? words.cleared : "";
      if (isAsked) this.form.querySelector("input, select, .pb-pieces button").focus();
      this.retry.hidden = true;
    }
  }

  book.questions = all(document, "form.pb-item:not([data-open])").map((form) => new Question(form));
  Object.assign(book, { made: made, button: button, inDays: inDays });
})();
