// The index of claims: it lists those that a reader chooses, and leads a link to a claim on to its
// numbers. The claims are in a file of their own, which is loaded when first needed.
(function () {
  "use strict";

  const book = window.proofbook;
  const form = document.querySelector("[data-claims]");
  const status = form.nextElementSibling;
  const frame = status.nextElementSibling;
  const lists = [...form.querySelectorAll("select")];
  let experiments, marks, verdicts, claims; // what is loaded
  let then = []; // what waits for it

  function loaded(act) {
    if (claims) return act();
    then.push(act);
    if (then.length > 1) return;
    document.head.append(Object.assign(document.createElement("script"), { src: form.dataset.claims }));
  }

  // What the file of the claims calls.
  book.claims = (all) => {
    [experiments, marks, verdicts, claims] = all;
    then.forEach((act) => act());
    then = [];
  };

  function made(name, css, ...content) {
    const element = document.createElement(name);
    if (css) element.className = css;
    element.append(...content);
    return element;
  }

  const placeOf = ([experiment, , , id]) => `${experiments[experiment][1]}#claim-${id}`;

  // One row; of the verdicts, those of the machine that is chosen, if any is.
  function row(claim, machine) {
    const link = made("a", "", claim[4]);
    link.href = placeOf(claim);
    const judged = made("td", "pb-label");
    const all = verdicts[claim[2]];
    all.forEach(([places, machines, words, css]) => {
      if (machine && !places.split(" ").includes(machine)) return;
      judged.append(made("span", `pb-on pb-verdict ${css}`, all.length > 1 ? `${machines}: ${words}` : words));
    });
    return made("tr", "", made("td", "pb-label", link), judged);
  }

  // A table without the rows of an earlier choice: a new one, whose links are one stop of the Tab key.
  function list(found, machine) {
    const table = frame.firstElementChild.cloneNode();
    table.append(frame.querySelector("thead"));
    let last = -1;
    found.forEach((claim) => {
      if (claim[0] !== last) {
        last = claim[0];
        const head = made("th", "", experiments[last][0]);
        head.colSpan = 2;
        head.scope = "rowgroup";
        table.append(made("tbody", "", made("tr", "pb-asks", head)));
      }
      table.lastElementChild.append(row(claim, machine));
    });
    frame.replaceChildren(table);
    frame.hidden = !found.length;
    book.stop(table);
  }

  const choices = () => lists.map((one) => one.value).filter(Boolean);

  // A verdict belongs to a machine: where both are chosen, it has to be that machine's.
  function show() {
    const chosen = choices();
    const machine = chosen.find((one) => /^m\d/.test(one));
    const verdict = chosen.find((one) => /^v-/.test(one) && one !== "v-differs");
    if (machine && verdict) chosen.push(`${machine}-${verdict}`);
    const isOf = marks.map((one) => chosen.every((choice) => one.split(" ").includes(choice)));
    const found = claims.filter(([, of]) => isOf[of]);
    list(found, machine);
    status.textContent = status.dataset.found.replace("{n}", found.length).replace("{m}", claims.length);
  }

  const follow = () => loaded(show);
  form.addEventListener("change", follow);
  form.addEventListener("reset", () => setTimeout(follow));
  // A browser that comes back to the page chooses again what was chosen.
  window.addEventListener("pageshow", () => choices().length && follow());

  // `#claim-…`: leads on to the page of its experiment.
  function arrive() {
    const [, id] = /^#claim-(.+)/.exec(decodeURIComponent(location.hash)) || [];
    if (!id || document.getElementById(`claim-${id}`)) return;
    loaded(() => {
      const claim = claims.find((one) => one[3] === id);
      if (claim) location.replace(placeOf(claim));
    });
  }
  window.addEventListener("hashchange", arrive);
  arrive();
})();
