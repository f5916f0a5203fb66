// A question. Its form becomes one that answers: nothing is given away before a reader commits, and then
// every answer explains itself. The key is read from the details below the form, which readers without
// this script open instead. `asked.js` makes the questions of a page, `recall.js` those of Recall, one at a time.

const { A_SITTING, words, store, say, made, button, all, place, plain, KINDS, memoryOf, schedule } = book;

const copies = (element) => Array.from(element.cloneNode(true).childNodes);
const why = (answer) => answer.querySelector(".pb-why");

const live = new Map(); // the questions that are asked, by the id of their box

// ——— One question ———

// A question that nobody is asked yet: Recall has many, and asks one at a time.
class Unasked {
  constructor(form) {
    const { item, digest, variant } = form.dataset;
    Object.assign(this, { form, digest, id: item, variant: Number(variant || 0) });
    this.digests = [digest];
    this.box = form.closest(".pb-question");
  }

  renew() {
    return new Question(this.form);
  }
}

class Question extends Unasked {
  constructor(form) {
    super(form);
    this.kind = form.dataset.kind;
    this.how = KINDS[this.kind];
    this.isGraded = !this.how.isGuess;
    this.numAttempts = this.isGraded ? 2 : 1;
    this.isDone = false;
    this.pristine = this.box.cloneNode(true);
    live.set(this.box.id, this);
    this.options = all(form, ".pb-option");
    this.key = all(this.box, ".pb-answers > li");
    this.hints = all(this.box, ".pb-hint");
    this.status = form.querySelector(".pb-status");
    this.answers = this.box.querySelector(".pb-answer");
    this.prepare();
    if (this.how.start) this.how.start(this);
  }

  // What only a script can work stands in no page without it.
  prepare() {
    this.check = this.form.querySelector(".pb-check");
    this.check.hidden = this.check.disabled = false;
    this.showHint = button(words.show_hint, () => this.hint());
    this.giveUp = button(words.give_up, () => this.steadily(() => this.end(null)));
    this.retry = button(words.retry, () => this.renew().form.querySelector("input, select, button").focus());
    const hint = this.hints.length ? [this.showHint] : [];
    const actions = made("div", "pb-actions", this.check, ...hint, this.giveUp, this.retry);
    [this.retry, this.answers].concat(this.hints).forEach((one) => (one.hidden = true));
    if (this.form.matches("[data-sure]")) this.status.before(document.getElementById("pb-sure").content.cloneNode(true));
    this.status.before(actions);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.isDone) this.steadily(() => this.commit());
    });
  }

  // Explanations come above the buttons, which stay where a reader has pressed one: the verdict is below them.
  steadily(act) {
    const top = () => this.check.getBoundingClientRect().top;
    const before = top();
    act();
    scrollBy({ top: top() - before, behavior: "instant" });
    this.look();
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
    this.status.append(made("span", "pb-hidden", plain(next.querySelector(".pb-inside"))));
    this.showHint.setAttribute("aria-disabled", n === this.hints.length);
  }

  commit() {
    const { how } = this;
    const answer = how.read(this);
    if (answer === null) {
      this.status.textContent = how.unread?.(this) || words.pick;
      return;
    }
    const { before, nth } = this.tried();
    if (before && String(before.answer) === String(answer)) {
      if (!this.status.textContent.includes(words.same_again)) this.status.append(" ", words.same_again);
      return;
    }
    if (how.judge(this, answer).isRight || nth >= this.numAttempts) return this.end(answer);
    this.keep(answer, false, false);
    this.warn(answer);
  }

  // The first try of this sitting, if a second is to follow; the record tells, whatever was reloaded.
  tried() {
    const one = store.of(this.id, this.digests)?.attempts.slice(-1)[0];
    const isOpen = one?.unfinished && (one.variant || 0) === this.variant && Date.now() - one.at < A_SITTING;
    return isOpen ? { before: one, nth: 2 } : { nth: 1 };
  }

  // A wrong answer that is not the last.
  warn(answer) {
    // Only a single option that was chosen explains itself as yet; of several, that would tell the rest.
    const option = this.option(answer);
    this.how.mark?.(this, answer);
    if (option) this.explain([option], answer);
    this.tell(answer, words.try_again);
  }

  // The last word on this question: right, out of attempts, or given up.
  end(answer) {
    this.keep(answer, answer !== null && this.how.judge(this, answer).isRight, true);
    this.finish(answer);
    this.form.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: this }));
  }

  // The verdict comes into view, and before it what is said of a line in a program that scrolls.
  look() {
    const lines = ["right", "wrong"].map((one) => this.form.querySelector(`.pb-program [data-verdict=${one}]`));
    [lines[0] || lines[1], this.status].forEach((one) => one?.scrollIntoView({ block: "nearest", behavior: "instant" }));
  }

  finish(answer) {
    this.isDone = true;
    this.box.dataset.done = "";
    if (this.field) {
      this.answers.hidden = false;
      this.answers.open = true;
      // Whoever is right has made none of the mistakes.
      const isRight = answer !== null && this.how.judge(this, answer).isRight;
      this.key.forEach((one) => (one.hidden = isRight && one.dataset.verdict === "wrong"));
      this.mark?.();
      const slip = answer === null ? null : this.how.judge(this, answer).about[0];
      if (slip?.matches("[data-verdict=wrong]")) why(slip).prepend(made("strong", "pb-chosen", words.slip), " ");
    } else {
      this.explain(this.how.settle ? this.how.settle(this) : this.options, answer);
      const more = this.box.querySelector(".pb-explains");
      if (more) this.status.after(more.cloneNode(true));
    }
    this.tell(answer, "");
    this.retry.hidden = false;
    // Focus stays where it is, and else goes on to what can be done next.
    const focused = document.activeElement;
    if (focused === this.giveUp) this.retry.focus();
    all(this.form, "input, select").forEach((one) => {
      one.disabled = one !== focused;
      one.readOnly = true;
    });
    this.check.setAttribute("aria-disabled", "true");
    this.giveUp.hidden = this.showHint.hidden = true;
    this.hints.forEach((one) => (one.hidden = false));
    book.open();
  }

  // Explanations in their places, with values that open from now on.
  explain(options, answer) {
    all(this.form, ".pb-chosen").forEach((one) => (one.textContent = words.first_wrong)); // of the first attempt
    options.forEach((option, position) => {
      if (option.querySelector(".pb-why")) return;
      const key = this.key.find((one) => place(one) === place(option));
      const { note, verdict } = this.how.stands(this, answer, option, key.dataset, position);
      const told = made("div", "pb-why", ...(note ? [made("strong", "pb-chosen", note), " "] : []));
      all(key, ".pb-beside").forEach((one) => told.append(one.cloneNode(true), /\.$/.test(plain(one)) ? " " : ". "));
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
    const judged = answer === null ? given : this.how.judge(this, answer);
    const isQuiet = this.how.isQuiet && !this.isDone;
    const { isRight, lead, hint, about } = isQuiet ? { ...judged, about: [] } : judged;
    const css = lead && !this.how.isGuess ? "" : isRight ? "pb-right" : "pb-wrong";
    this.status.textContent = "";
    this.status.append(made("strong", css, lead || words[isRight ? "right" : "wrong"]), " ");
    const isSaid = this.field || this.how.isQuiet || !this.isDone;
    if (hint) this.status.append(made("span", isSaid ? "" : "pb-hidden", hint), " ");
    about.forEach((one) => {
      const isSeen = this.field ? this.isDone : this.box.querySelector(".pb-option .pb-why");
      // What is only spoken has no links: they would be stops of the Tab key that nobody sees.
      const told = isSeen ? [plain(why(one))] : copies(why(one));
      this.status.append(made("span", isSeen ? "pb-hidden" : "", ...told, " "));
    });
    const right = [answer === null ? "" : `${words.the_answer} `, this.rightAnswer(), ". "];
    // Of a number, it stands below.
    if (this.isDone && !isRight) this.status.append(made("span", this.field ? "pb-hidden" : "", ...right));
    this.status.append(more);
  }

  // The right answer in one line.
  rightAnswer() {
    const right = this.key.filter((one) => one.dataset.verdict === "right");
    const texts = right.map((one) =>
      all(one, this.how.texts || ".pb-said").map((part) => plain(part).replace(/\.$/, "")).join(": ")
    );
    return texts.join(this.how.joint || "; ");
  }

  keep(answer, isRight, done) {
    const now = Date.now();
    const sure = this.form.querySelector(".pb-sure input:checked");
    const confidence = sure ? Number(sure.value) : null;
    const record = store.of(this.id, this.digests) || { attempts: [], due: 0, again: false, done: false };
    const { nth } = this.tried();
    const memory = memoryOf(record);
    const last = record.attempts[record.attempts.length - 1];
    if (last && now - last.at > A_SITTING) record.again = false;
    Object.assign(record, { digest: this.digest, kind: this.isGraded ? this.kind : "predict" });
    const attempt = { at: now, answer, is_right: isRight, confidence, gave_up: answer === null, nth };
    if (this.variant) attempt.variant = this.variant;
    if (!done) attempt.unfinished = true; // what was answered before it counts until it is
    record.attempts.push(attempt);
    if (done) {
      const first = { isRight: isRight && nth === 1, confidence, isGraded: this.isGraded, now };
      Object.assign(record, schedule(memory, record, first), { done });
    }
    const isKept = store.put(this.id, record);
    const isSaid = document.querySelector(".pb-unkept");
    if (!isKept && !isSaid) this.box.append(made("p", "pb-aside pb-unkept", words.unkept));
    book.mark();
  }

  // As it was answered before, unless it reads otherwise now.
  restore() {
    const before = store.of(this.id, this.digests);
    // Where a link from Recall leads to it, a question that is due is asked again.
    const isAsked = location.hash === `#item-${this.id}`;
    const isAgain = before?.done && isAsked && book.isDueNow(before);
    if (isAgain || (!before && store.get(this.id))) this.status.textContent = words[isAgain ? "due_again" : "changed"];
    const own = before?.done && !isAgain ? before.attempts.filter((one) => !one.variant && !one.unfinished) : [];
    const first = this.numAttempts > 1 && this.tried().before;
    const last = first || own.pop();
    if (last) {
      if (last.answer !== null) this.how.put(this, last.answer);
      if (first) this.warn(last.answer);
      else this.finish(last.answer);
      this.status.prepend(words.restored, " ");
    }
    return this;
  }

  // The same question, as if it had never been answered.
  renew() {
    this.box.replaceWith(this.pristine);
    const form = this.pristine.querySelector("form");
    form.reset(); // of what was entered before this script was there
    const again = new Question(form);
    book.open();
    return again;
  }
}

Object.assign(book, { live, Unasked, Question });
