// Where a number comes from, and what a term means. Each value is a link to its run, each term one to the
// glossary; with this file they open in the one popover of the page, filled from the data at the page's
// end and from a file of all definitions. And a table, or a line of links in the guide, is one stop of the
// Tab key: arrow keys go from link to link in it.

const book = window.proofbook;
const { all, made } = book;
const words = book.source;
const data = JSON.parse(document.getElementById("pb-sources")?.textContent || null);
const box = made("div");
let opener, wasOpen; // what the popover belongs to; whether it was open when the pointer went down on it

const linked = (text, href) => Object.assign(made("a", "", text), { href });

const isRun = Number.isInteger;
const path = (of, field, by) => [...data.runs[of].slice(1, 3), field].filter(Boolean).join(by);

const pathOf = (at) => path(data.values[at][3], data.values[at][2], ".");
const placeOf = (of) => {
  const [machine, experiment, name, , , suffix] = data.runs[of];
  return `${data.root}${machine ? `evidence/${experiment}` : experiment.replace("_", "/")}.html#${name}${suffix || ""}`;
};

// The rows of a value: a name and what it says. Columns as generator/printing/sources.py has them.
function rowsOf(value) {
  const [text, kind, formula, of, exact, absent, marks] = value;
  const rows = [];
  const traces = {};
  const add = (name, said) => said && rows.push([name, said]);
  const from = (one) => {
    const [machine, experiment] = data.runs[one];
    if (machine && experiment) traces[`traces/${machine}/${experiment}.json`] = `${experiment}.json`;
    return machine || words.no_machine;
  };
  add(words.why, absent);
  marks?.split(" ").forEach((mark) => add(words.nature, data.natures[mark]));
  add(words.exactly, exact === 1 ? text : exact);
  if (isRun(of)) {
    const [machine, experiment, name, recorded, software] = data.runs[of];
    add(words.from, made("code", "", path(of, formula, " · ")));
    add(words.on, experiment ? `${from(of)}, ${recorded}, ${software}` : machine);
    add(words.run, name && linked(name, placeOf(of)));
  } else if (kind > 3) { // cited or stated
    add(words.source, formula);
  } else {
    const machines = new Set();
    add(words.formula, made("code", "", formula.replace(/\{(\d+)\}/g, (slot, at) => pathOf(of[at]))));
    of?.forEach((at) => {
      const [shown, one, field, run] = data.values[at];
      const name = !isRun(run) ? field : data.runs[run][2] ? linked(pathOf(at), placeOf(run)) : pathOf(at);
      add(words.from, made("span", "", made("code", "", name), ` = ${shown} (${words.kinds[one].split(/\W/)[0]})`));
      if (isRun(run)) machines.add(from(run));
    });
    machines.forEach((machine) => add(words.on, machine));
  }
  // What a run measured or simulated is measured again by its field; what is computed of such, by their runs.
  const again = new Set();
  (isRun(of) ? [value] : of?.map((at) => data.values[at]))?.forEach(([, how, field, run]) => {
    if (how % 2 && data.runs[run]?.[2]) again.add(path(run, isRun(of) && field, "."));
  });
  if (again.size) {
    const quoted = [...again].map((one) => (one.includes("[") ? `'${one}'` : one)); // as a shell needs it
    const name = linked(isRun(of) ? words.repeat : words.repeat_inputs, `${data.root}evidence.html#repeat`);
    add(name, made("code", "", [data.command, ...quoted].join(" ")));
  }
  Object.entries(traces).forEach(([place, name]) => add(words.trace, linked(name, data.root + place)));
  return rows;
}

function fill(number, shown) {
  const value = data.values[number];
  const list = made("dl");
  // In the unit that was pressed: a slider's ends may have another one than the value has elsewhere.
  const bold = made("b", "", /\d\s\D/.test(shown) ? shown : value[0] || shown);
  const head = made("p", "", bold, `: ${words.kinds[value[1]]}`);
  rowsOf(value).forEach(([name, said]) => list.append(made("dt", "", name), made("dd", "", said)));
  box.replaceChildren(head, list);
  box.ariaLabel = head.textContent;
}

// Below its number where the window allows.
function put(at) {
  const [place] = at.getClientRects();
  const gap = 5;
  const isBelow = place.bottom + gap + box.offsetHeight < innerHeight || place.top < box.offsetHeight;
  const top = isBelow ? place.bottom + gap : place.top - gap - box.offsetHeight;
  const left = Math.max(gap, Math.min(place.left, innerWidth - box.offsetWidth - 4 * gap));
  box.style.setProperty("--pb-top", `${top + scrollY}px`);
  box.style.setProperty("--pb-left", `${left + scrollX}px`);
}

// The first term that is opened loads all definitions; without them its link leads to the glossary.
function define(link) {
  const [term, definition] = book.terms[link.hash.replace("#term-", "")];
  box.replaceChildren(made("p", "", made("b", "", term)));
  box.insertAdjacentHTML("beforeend", definition);
  box.append(linked(words.glossary, link.href));
  box.ariaLabel = term;
  show(link);
}

function openTerm(link) {
  if (book.terms) return define(link);
  book.load(new URL("assets/terms.js", link.href), () => define(link), () => (location = link.href));
}

function show(at) {
  if (box.matches(":popover-open")) box.hidePopover();
  // Behind the block that it belongs to, so that the Tab key goes on from there.
  (at.closest("figure, table, dl, ul, ol, p, label, blockquote, details") || at).after(box);
  box.showPopover();
  put(at);
  opener = at;
  box.focus();
}

const OPENS = "a[data-v], a.pb-term";

if (box.showPopover) {
  box.className = "pb-source";
  box.popover = "auto";
  box.tabIndex = -1;
  box.role = "dialog";
  document.addEventListener("pointerdown", ({ target }) => {
    wasOpen = box.matches(":popover-open") && opener === target.closest(OPENS);
  }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest(OPENS);
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (!wasOpen && link.dataset.v) {
      fill(link.dataset.v, link.firstChild?.textContent.trim());
      show(link);
    } else if (!wasOpen) {
      openTerm(link);
    }
    wasOpen = false;
  });
}

// The links of a table, of which one at a time is a stop of the Tab key.
function stop(table) {
  if (table.parentElement.closest("table")) return;
  const links = all(table, "a[href]:not(.pb-one-state :is(.pb-choice, .pb-other) a)");
  if (links.length) (table.closest(".pb-scroll") || table).removeAttribute("tabindex");
  links.forEach((link, at) => (link.tabIndex = at && -1));
  table.onkeydown = (event) => book.rove(event, links);
}

// Arrow keys go from one of these to the next, which then is the one stop of the Tab key.
book.rove = (event, links) => {
  const at = links.indexOf(event.target);
  const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: links.length - 1 };
  const next = links[to[event.key]];
  if (at < 0 || !next || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
};
all(document, ".md-content table, .pb-facts, .pb-terms, .pb-stop").forEach(stop);
book.stop = stop;
