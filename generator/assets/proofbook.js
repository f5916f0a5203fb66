// Questions and progress. Every page reads the same without this file: answers then stand in
// <details>. With it, nothing is given away before an answer, each option explains itself in its
// place, and answers are kept by the question's own id and a digest of what it says.
(function () {
  "use strict";

  var PREFIX = "proofbook:";

  // Storage may be full, forbidden or foreign: then nothing is kept and nothing is lost.
  function kept(key) {
    try {
      return JSON.parse(localStorage.getItem(PREFIX + key));
    } catch (error) {
      return null;
    }
  }

  function keep(key, value) {
    try {
      localStorage.setItem(PREFIX + key, JSON.stringify(value));
    } catch (error) {
      /* the page goes on without */
    }
  }

  function element(name, css, text) {
    var made = document.createElement(name);
    made.className = css;
    made.textContent = text;
    return made;
  }

  function Question(form) {
    var box = form.closest(".pb-question");
    this.form = form;
    this.key = "item:" + form.dataset.item;
    this.digest = form.dataset.digest;
    this.button = form.querySelector(".pb-check");
    this.status = form.querySelector(".pb-status");
    this.options = Array.from(form.querySelectorAll(".pb-option"));
    this.answers = box.querySelector(".pb-answer");
    this.after = document.querySelector('[data-after="' + form.dataset.item + '"]');
    this.isDone = false;
    this.answers.hidden = true;
    this.button.hidden = false;
    this.button.disabled = false;
    form.addEventListener("submit", this.check.bind(this));
    this.restore();
  }

  Question.prototype.restore = function () {
    var before = kept(this.key);
    if (!before) return;
    if (before.digest !== this.digest) {
      this.status.textContent = this.form.dataset.changed;
      return;
    }
    var input = this.options[before.choice] && this.options[before.choice].querySelector("input");
    if (!input) return;
    input.checked = true;
    this.reveal(before.choice);
    this.status.textContent = this.form.dataset.restored;
  };

  Question.prototype.check = function (event) {
    event.preventDefault();
    if (this.isDone) return;
    var choice = this.options.findIndex(function (option) {
      return option.querySelector("input").checked;
    });
    if (choice < 0) {
      this.status.textContent = this.form.dataset.pick;
      return;
    }
    keep(this.key, { digest: this.digest, choice: choice });
    this.reveal(choice);
    this.say(choice);
    if (this.after) this.after.open = true;
    markPage();
  };

  Question.prototype.reveal = function (choice) {
    var answers = Array.from(this.answers.querySelectorAll("li"));
    this.options.forEach(function (option, position) {
      var answer = answers[position];
      var why = answer.querySelector(".pb-why");
      var verdict = answer.querySelector(".pb-verdict-word");
      if (answer.dataset.verdict === "right" || position === choice) {
        option.dataset.verdict = answer.dataset.verdict;
      }
      option.querySelector("input").disabled = true;
      if (position === choice) {
        option.querySelector("label").append(element("span", "pb-chosen", this.form.dataset.chosen));
      }
      why.prepend(verdict, " ");
      option.append(why);
    }, this);
    this.isDone = true;
    this.button.setAttribute("aria-disabled", "true");
  };

  // Said aloud: the verdict, and why the chosen option is what it is.
  Question.prototype.say = function (choice) {
    var option = this.options[choice];
    var word = option.querySelector(".pb-verdict-word");
    this.status.textContent = "";
    this.status.append(
      element("strong", word.className, word.textContent),
      " ",
      element("span", "pb-hidden", option.querySelector(".pb-why-text").textContent)
    );
  };

  Question.prototype.isKept = function () {
    var before = kept(this.key);
    return Boolean(before && before.digest === this.digest);
  };

  var questions = Array.from(document.querySelectorAll("form.pb-item")).map(function (form) {
    return new Question(form);
  });

  // A mode is done when all its questions are answered; the row of modes then says so.
  function markPage() {
    var here = document.querySelector(".pb-modes a[aria-current]");
    if (here && questions.length) {
      var isDone = questions.every(function (question) {
        return question.isKept();
      });
      keep("page:" + here.dataset.page, isDone);
    }
    document.querySelectorAll(".pb-modes a[data-page]").forEach(function (link) {
      var tick = link.querySelector(".pb-done");
      if (tick) tick.hidden = kept("page:" + link.dataset.page) !== true;
    });
  }
  markPage();

  // On paper, everything is open.
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll(".md-content details:not([open])"));
    opened.forEach(function (details) {
      details.open = true;
    });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (details) {
      details.open = false;
    });
  });
})();
