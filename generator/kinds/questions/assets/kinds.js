// The kinds of questions: how each is read from its form, put back, and compared with its key. Here are
// choices; `pieces.js` has those of pieces in places, and `numbers.js` those of numbers that are typed.

const { all, say } = book;
const words = Object.assign(book.words, book.asking);

// The text of an element, with the LaTeX of its formulas.
function plain(element) {
  const copy = element.cloneNode(true);
  all(copy, "math").forEach((math) => math.replaceWith(math.querySelector("annotation").textContent));
  return copy.textContent.trim();
}

book.button = (text, act) => {
  const element = book.made("button", "pb-button", text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
};

const place = (element) => Number(element.dataset.position);

// ——— The kinds ———
//
// `read` takes the answer from the form and `put` puts it back; `judge` compares it with the key
// and says which explanations are about it; `stands` says of one option how it was answered. A kind may have
// more: `start` prepares its form; `unread` says why an answer cannot be read; `settle` puts the right answer into it, and gives the options in the
// order in which they are explained; `isQuiet` explains nothing before the last try; `isGuess` is not
// graded; `texts` selects what the right answer says of each part, and `joint` stands between them.

const ticked = (q) => q.options.filter((one) => one.querySelector("input").checked).map(place);

const chosen = {
  read: (q) => ticked(q)[0] ?? null,
  put: (q, answer) =>
    q.options.forEach((one) => {
      one.querySelector("input").checked = [].concat(answer).includes(place(one));
    }),
  judge: (q, answer) => {
    const about = q.key.filter((one) => [].concat(answer).includes(place(one)));
    const isIn = (list) => list.filter((one) => one.dataset.verdict === "right").length;
    const [n, m] = [isIn(about), about.length];
    const isLacking = n < isIn(q.key);
    // Of several, how many are right; which ones, only after the last attempt.
    const hint = q.how.isQuiet && n < m ? say(isLacking ? "mixed" : "too_many", { n, m }) : "";
    return { isRight: n === m && !isLacking, about, lead: n === m && isLacking ? words.lacks : "", hint };
  },
  stands: (q, answer, option, { verdict }) => {
    const isPicked = [].concat(answer).includes(place(option));
    const isRight = verdict === "right";
    // Of one option that is right, those that nobody chose were no mistake.
    const isSaid = isPicked || isRight || q.how.isQuiet;
    const how = isPicked ? "picked" : q.how.isQuiet && answer !== null ? "left" : "given";
    return { note: isSaid ? words[`${how}_${verdict}`] : "", verdict: isPicked || isRight ? verdict : "" };
  },
};

const several = {
  ...chosen,
  isQuiet: true,
  read: (q) => (ticked(q).length ? ticked(q) : null),
};

Object.assign(book, { place, plain, KINDS: { choice: chosen, several, faulty_line: chosen } });
