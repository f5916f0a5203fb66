// Where a number comes from, and what a term means. Each value is a link to its run, each term one to the
// glossary; with this file they open in the one popover of the page, which `values.js` or a file of all
// definitions fills. And a table, or a line of links in the guide, is one stop of the Tab key: arrow keys
// go from link to link in it.

const { all, made } = book;
const ASSETS = document.currentScript.src;
const box = made("div", "pb-source");
let opener, wasOpen; // what the popover belongs to; whether it was open when the pointer went down on it

// Put a box below its number where the window allows.
book.put = (box, at) => {
  const [place] = at.getClientRects();
  const gap = 5;
  const isBelow = place.bottom + gap + box.offsetHeight < innerHeight || place.top < box.offsetHeight;
  const top = isBelow ? place.bottom + gap : place.top - gap - box.offsetHeight;
  const left = Math.max(gap, Math.min(place.left, innerWidth - box.offsetWidth - 4 * gap));
  box.style.setProperty("--pb-top", `${top + scrollY}px`);
  box.style.setProperty("--pb-left", `${left + scrollX}px`);
};

function define(link) {
  const [term, definition] = book.terms[link.hash.replace("#term-", "")];
  box.replaceChildren(made("p", "", made("b", "", term)));
  box.insertAdjacentHTML("beforeend", definition);
  box.append(Object.assign(made("a", "", book.term.glossary), { href: link.href }));
  box.ariaLabel = term;
}

// The first value and the first term that are opened load what fills the box; without it, their links lead on.
function open(link) {
  const [name, fill] = link.dataset.v ? ["values", book.fill] : ["terms", book.terms && define];
  if (!fill) return book.load(new URL(`${name}.js`, ASSETS), () => open(link), () => (location = link.href));
  fill(link, box);
  show(link);
}

function show(at) {
  if (box.matches(":popover-open")) box.hidePopover();
  // Behind the block that it belongs to, so that the Tab key goes on from there.
  (at.closest("figure, table, dl, ul, ol, p, label, blockquote, details") || at).after(box);
  box.showPopover();
  book.put(box, at);
  opener = at;
  box.focus();
}

const OPENS = "a[data-v], a.pb-term";

Object.assign(box, { popover: "auto", tabIndex: -1, role: "dialog" });
document.addEventListener("pointerdown", ({ target }) => {
  wasOpen = box.matches(":popover-open") && opener === target.closest(OPENS);
}, true);
document.addEventListener("click", (event) => {
  const link = event.target.closest(OPENS);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (!wasOpen) open(link);
  wasOpen = false;
});

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
