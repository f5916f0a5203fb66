// Questions that put pieces in order, or match them with others.

const { say, all, place, plain } = book;
const words = Object.assign(book.words, book.pieces);

const ordered = {
  start: (q) =>
    q.options.forEach((piece) => {
      const name = plain(piece.querySelector(".pb-piece"));
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
    q.form.querySelector(".pb-pieces").append(...answer.map((at) => q.option(at)));
  },
  settle: (q) => {
    ordered.put(q, q.key.map(place));
    return q.key.map((one) => q.option(place(one)));
  },
  joint: " → ",
  judge: (q, answer) => misplaced(q, answer, q.key.map(place), ".pb-said"),
  stands: (q, answer, option, key, position) => {
    const was = answer ? answer.indexOf(place(option)) : position;
    const isRight = was === position;
    return { note: isRight ? "" : say("was_at", { n: was + 1 }), verdict: isRight ? "right" : "wrong" };
  },
};

const matched = {
  start: (q) => q.form.addEventListener("change", ({ target }) => delete target.parentNode.dataset.verdict),
  mark: (q, answer) =>
    q.options.forEach((row, at) => {
      row.dataset.verdict = answer[at] === place(row) ? "right" : "wrong";
    }),
  read: (q) => {
    const picked = all(q.form, "select").map((one) => one.value);
    return picked.includes("") ? null : picked.map(Number);
  },
  put: (q, answer) => all(q.form, "select").forEach((one, at) => (one.value = String(answer[at]))),
  texts: ".pb-said, .pb-beside",
  judge: (q, answer) => {
    const judged = misplaced(q, answer, q.key.map(place), ".pb-beside");
    const row = q.options.find((one, at) => answer[at] !== place(one));
    if (row) judged.hint = say("unmatched", { row: plain(row.querySelector("label")), piece: judged.piece });
    return judged;
  },
  stands: (q, answer, option, key, position) => {
    if (!answer) return { note: "", verdict: "right" };
    const { selectedOptions } = option.querySelector("select");
    const isRight = answer[position] === place(option);
    const note = isRight ? words.right : say("matched", { yours: selectedOptions[0].text });
    return { note, verdict: isRight ? "right" : "wrong" };
  },
};

// The first thing that stands where another belongs, with what is true of it.
function misplaced(q, answer, right, name) {
  const first = answer.findIndex((one, at) => one !== right[at]);
  if (first < 0) return { isRight: true, about: q.key };
  const about = q.key[right.indexOf(answer[first])];
  const piece = plain(about.querySelector(name));
  return { isRight: false, about: [about], piece, hint: say("misplaced", { piece }) };
}

Object.assign(book.KINDS, { order: ordered, match: matched });
