// The index of claims: it lists those with the words that a reader types. They are in a file of their
// own, which is loaded when somebody types.
(function () {
  "use strict";

  const book = window.proofbook;
  const form = document.querySelector("[data-claims]");
  const field = form.querySelector("input");
  const frame = form.nextElementSibling;
  let experiments, verdicts, claims; // what is loaded

  // What the file of the claims calls; the page loads it once somebody types.
  book.claims = (all) => {
    [experiments, verdicts, claims] = all;
    show();
  };

  function made(name, css, ...content) {
    const element = Object.assign(document.createElement(name), { className: css });
    element.append(...content);
    return element;
  }

  const placeOf = ([experiment, , id]) => `${experiments[experiment][1]}#claim-${id}`;
  const saidOf = ([experiment, on, , sentence]) =>
    ` ${[experiments[experiment][0], sentence, ...verdicts[on].map(([words]) => words)].join(" ")}`.toLowerCase();

  function row(claim) {
    const link = Object.assign(made("a", "", claim[3]), { href: placeOf(claim) });
    // no line ends at a hyphen of a machine's name
    const whole = (words) => words.split(/( )/).map((word) => (word === " " ? word : made("span", "pb-keep", word)));
    const judged = verdicts[claim[1]].map(([words, css]) => made("span", `pb-verdict ${css}`, ...whole(words)));
    return made("tr", "", made("td", "pb-label", link), made("td", "pb-label", ...judged));
  }

  // A table without the rows of an earlier choice: a new one, whose links are one stop of the Tab key.
  function list(found) {
    const table = frame.firstElementChild.cloneNode();
    table.append(frame.querySelector("thead"));
    let last = -1;
    found.forEach((claim) => {
      if (claim[0] !== last) {
        last = claim[0];
        const head = Object.assign(made("th", "", experiments[last][0]), { colSpan: 2, scope: "rowgroup" });
        table.append(made("tbody", "", made("tr", "pb-asks", head)));
      }
      table.lastElementChild.append(row(claim));
    });
    frame.replaceChildren(table);
    frame.hidden = !found.length;
    book.stop(table);
  }

  function show() {
    if (!claims) return document.head.append(Object.assign(document.createElement("script"), { src: form.dataset.claims }));
    const typed = field.value.trim().toLowerCase();
    const found = typed ? claims.filter((claim) => saidOf(claim).includes(` ${typed}`)) : [];
    list(found);
    form.querySelector("output").textContent = `${found.length} / ${claims.length}`;
  }

  form.hidden = false;
  field.addEventListener("input", show);
  // A browser that comes back to the page brings what was typed.
  window.addEventListener("pageshow", () => field.value && show());
})();
