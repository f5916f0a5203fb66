// Questions. Each form of a page becomes one that answers: nothing is given away before a reader
// commits, and then every answer explains itself. The key is read from the details below the form,
// which readers without this script open instead.
(function () {
  "use strict";

  const book = window.proofbook;
  const { words, store, say, made, all } = book;
  const NUM_KEPT = 20; // attempts of one item

  // When an answered item comes back:
  //
  //           sure           fairly sure, or unsaid       a guess
  //   right   interval       interval                     once more in this sitting, then a day
  //   wrong   a week         once more in this sitting, then a day
  //
  // Each right answer moves on by one interval; before its day it moves nothing. Days begin at the
  // reader's own midnight.
  const INTERVALS = [1, 3, 7, 21, 60];
  const A_WEEK = 7;
  const A_SITTING = 4 * 36e5; // milliseconds

  function inDays(num, time) {
    const day = new Date(time);
    day.setHours(0, 0, 0, 0);
    day.setDate(day.getDate() + num);
    return day.getTime();
  }

  function schedule({ step, due, again }, isRight, confidence, isGraded, now) {
    if (!isRight && confidence === 2) return { step: 0, due: inDays(A_WEEK, now), again: false };
    const isUnsure = !isRight || confidence === 0;
    if (isGraded && isUnsure && !again) return { step: 0, due: now, again: true };
    if (isRight && due > now) return { step, due, again: false };
    const next = isRight ? Math.min(step, INTERVALS.length - 1) : 0;
    return { step: isRight ? next + 1 : 0, due: inDays(INTERVALS[next], now), again: false };
  }

  const place = (element) => Number(element.dataset.position);
  const copies = (element) => Array.from(element.cloneNode(true).childNodes);
  const why = (answer) => answer.querySelector(".pb-why");
  const printed = (number, digits) =>
    Number(number.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 });

  // ——— What a reader typed ———

  // The numbers that a text may mean, likeliest first: a point or a comma may part decimals, and
  // the other one thousands, which come by three.
  function numbers(text, unit) {
    const bare = text.replace(unit, "").replace(/[\s'’_%]/g, "").replace(/[−–]/, "-");
    if (!/^[+-]?[\d.,]*\d[.,]?(e[+-]?\d+)?$/i.test(bare)) return [];
    const read = (thousands, decimals) =>
      (/^[+-]?0/.test(bare) && bare.includes(thousands)) ||
      bare.split(thousands).slice(1).some((part) => !/^\d{3}(\D|$)/.test(part))
        ? NaN
        : Number(bare.split(thousands).join("").replace(decimals, "."));
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
            // The neighbour moves, so that focus stays on the button.
            piece[isDown ? "before" : "after"](other);
            const n = ordered.read(q).indexOf(place(piece)) + 1;
            q.status.textContent = say("moved", { piece: name, n, m: q.options.length });
          });
        });
      }),
    read: (q) => all(q.form, ".pb-pieces > li").map(place),
    put: (q, answer) =>
      q.form.querySelector(".pb-pieces").append(...answer.map((at) => q.option(at) || "")),
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
      const meant = numbers(text, q.unit).map((number) => number * q.scale);
      const known = meant.filter((number) => q.key.some((one) => isWithin(one, number)));
      return known.concat(meant, null)[0];
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
      const off = Number.isFinite(ratio) && ratio > 1.005;
      return {
        isRight,
        about,
        lead: words[isRight ? "close" : ratio < 10 ? "not_close" : "far"],
        hint: said + (off ? " " + say(isFar ? "by_factor" : "by_share", { way, by }) : ""),
      };
    },
  });

  function slide(q, ends) {
    const { low, high, logarithmic } = ends.dataset;
    const range = ends.firstElementChild;
    range.hidden = false;
    range.addEventListener("input", () => {
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

  // ——— One question ———

  class Question {
    constructor(form) {
      const { item, digest, former, kind, attempts } = form.dataset;
      Object.assign(this, { form, digest, kind, id: item, numAttempts: Number(attempts) });
      this.digests = [digest].concat(former ? former.split(" ") : []);
      this.how = KINDS[kind];
      this.isGraded = kind !== "predict";
      this.isDone = false;
      this.tries = 0;
      this.box = form.closest(".pb-question");
      this.pristine = this.box.cloneNode(true);
      this.options = all(form, ".pb-option");
      this.key = all(this.box, ".pb-answers > li");
      this.hints = all(this.box, ".pb-hint");
      this.after = all(document, "[data-after]").filter((one) => one.dataset.after === item);
      this.status = form.querySelector(".pb-status");
      this.answers = this.box.querySelector(".pb-answer");
      this.prepare(form.querySelector(".pb-actions"));
      if (this.how.start) this.how.start(this);
    }

    prepare(actions) {
      const [check, retry, giveUp, showHint] = ["check", "retry", "give-up", "show-hint"].map((name) =>
        actions.querySelector(`.pb-${name}`)
      );
      Object.assign(this, { check, retry, giveUp, showHint: showHint || made("button") });
      check.disabled = false;
      all(this.form, ".pb-sure, .pb-actions > :not(.pb-retry)").forEach((one) => (one.hidden = false));
      [this.answers].concat(this.hints, this.after).forEach((one) => (one.hidden = true));
      this.showHint.addEventListener("click", () => this.hint());
      giveUp.addEventListener("click", () => this.end(null));
      retry.addEventListener("click", () => this.renew().form.querySelector("input, select, button").focus());
      this.form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (!this.isDone) this.commit();
      });
    }

    option(at) {
      return this.options.find((one) => place(one) === at);
    }

    hint() {
      const next = this.hints.find((one) => one.hidden);
      if (!next) return;
      next.hidden = false;
      next.open = true;
      const n = this.hints.indexOf(next) + 1;
      this.status.textContent = say("hint_of", { n, m: this.hints.length });
      this.status.append(made("span", "pb-hidden", next.querySelector(".pb-inside").textContent));
      this.showHint.setAttribute("aria-disabled", n === this.hints.length);
    }

    commit() {
      const answer = this.how.read(this);
      if (answer === null) {
        this.status.textContent = this.field && this.field.value ? words.no_number : words.pick;
        return;
      }
      if (this.how.judge(this, answer).isRight || this.tries + 1 >= this.numAttempts) return this.end(answer);
      this.keep(answer, false, false);
      this.tries += 1;
      // Only what was chosen explains itself as yet.
      if (this.how === chosen) this.explain([].concat(answer).map((at) => this.option(at)), answer);
      this.tell(answer, words.try_again);
    }

    // The last word on this question: right, out of attempts, or given up.
    end(answer) {
      this.keep(answer, answer !== null && this.how.judge(this, answer).isRight, true);
      this.finish(answer);
      this.form.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: this }));
    }

    finish(answer) {
      this.isDone = true;
      this.box.dataset.done = "";
      if (this.field) {
        this.answers.hidden = false;
        this.answers.open = true;
      } else {
        if (this.kind === "order") ordered.put(this, this.key.map(place));
        this.explain(this.kind === "order" ? this.key.map((one) => this.option(place(one))) : this.options, answer);
        const more = this.box.querySelector(".pb-explains");
        if (more) this.status.after(more.cloneNode(true));
      }
      this.tell(answer, "");
      this.retry.hidden = false;
      // Focus stays where it is, and else goes on to what can be done next.
      const focused = document.activeElement;
      if (focused === this.giveUp) this.retry.focus();
      all(this.form, "input, select").forEach((one) => (one.disabled = one !== focused));
      this.check.setAttribute("aria-disabled", "true");
      this.giveUp.hidden = this.showHint.hidden = true;
      this.hints.concat(this.after).forEach((one) => (one.hidden = false));
      this.after.forEach((one) => (one.open = true));
    }

    // Explanations in their places, with values that open from now on.
    explain(options, answer) {
      options.forEach((option, position) => {
        if (option.querySelector(".pb-why")) return;
        const key = this.key.find((one) => place(one) === place(option));
        const { note, verdict } = this.how.stands(this, answer, option, key.dataset, position);
        const told = made("div", "pb-why");
        if (note) told.append(made("span", "pb-chosen", note), " ");
        all(key, ".pb-verdict-word, .pb-beside").forEach((one) => {
          told.append(one.cloneNode(true), one.matches(".pb-beside") ? ". " : " ");
        });
        told.append(...copies(why(key)));
        option.dataset.verdict = verdict;
        option.append(told);
        const text = option.querySelector("label > span, .pb-piece");
        if (!text) return;
        text.textContent = "";
        text.append(...copies(key.querySelector(".pb-said")));
      });
    }

    // The verdict, and why; what stands elsewhere already is only spoken.
    tell(answer, more) {
      const given = { lead: words.given_up, about: [], hint: "" };
      const { isRight, lead, hint, about } = answer === null ? given : this.how.judge(this, answer);
      const css = lead ? "" : isRight ? "pb-right" : "pb-wrong";
      this.status.textContent = "";
      this.status.append(made("strong", css, lead || words[isRight ? "right" : "wrong"]), " ");
      if (hint && (this.field || !this.isDone)) this.status.append(hint, " ");
      about.forEach((one) => {
        const isSeen = this.field ? this.isDone && one === this.key[0] : this.box.querySelector(".pb-option .pb-why");
        const told = made("span", isSeen ? "pb-hidden" : "");
        told.append(...copies(why(one)), " ");
        this.status.append(told);
      });
      this.status.append(more);
    }

    keep(answer, isRight, done) {
      const at = Date.now();
      const sure = this.form.querySelector(".pb-sure input:checked");
      const confidence = sure ? Number(sure.value) : null;
      const before = store.of(this.id, this.digests);
      const record = before || { attempts: [], step: 0, due: 0, again: false, done: false };
      record.digest = this.digest;
      const gave_up = answer === null;
      const nth = this.tries + 1;
      const last = record.attempts[record.attempts.length - 1];
      if (nth === 1) this.first = { isRight, confidence };
      if (last && at - last.at > A_SITTING) record.again = false;
      record.kind = this.kind;
      record.attempts.push({ at, answer, is_right: isRight, confidence, gave_up, nth });
      if (record.attempts.length > NUM_KEPT) record.attempts.splice(1, 1);
      if (done) Object.assign(record, { done }, schedule(record, this.first.isRight, this.first.confidence, this.isGraded, at));
      const isKept = store.put(this.id, record);
      const isSaid = document.querySelector(".pb-unkept");
      if (!isKept && !isSaid) this.box.append(made("p", "pb-aside pb-unkept", words.unkept));
      book.mark();
    }

    // As it was answered before, unless it reads otherwise now or cannot hold such an answer.
    restore() {
      const before = store.of(this.id, this.digests);
      if (!before && store.get(this.id)) this.status.textContent = words.changed;
      else if (before && before.done) {
        const { answer } = before.attempts[before.attempts.length - 1];
        try {
          if (answer !== null) this.how.put(this, answer);
          const isHeld = answer === null || this.field || String(this.how.read(this)) === String(answer);
          if (!isHeld) throw new Error("an answer of another kind of question");
          this.finish(answer);
          this.status.prepend(words.restored, " ");
        } catch (error) {
          this.renew();
        }
      }
      return this;
    }

    // The same question, as if it had never been answered.
    renew() {
      this.box.replaceWith(this.pristine);
      return new Question(this.pristine.querySelector("form"));
    }
  }

  const forms = all(document, "form.pb-item:not([data-open])");
  book.questions = forms.map((form) => new Question(form));
  book.questions.filter((one) => !one.form.closest("[data-recall]")).forEach((one) => one.restore());
  book.inDays = inDays;
})();
