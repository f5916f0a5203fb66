// What seen.py asks of an open page: lists of what is wrong there, and facts.

const all = (chosen, within = document) => [...within.querySelectorAll(chosen)];
const box = (one) => one.getBoundingClientRect();
const style = (one) => getComputedStyle(one);
const said = (one) => one.textContent.trim().slice(0, 60);
const begins = (one) => one.outerHTML.slice(0, 120);
const isShown = (one) => one.checkVisibility() && one.textContent.trim();
const contents = (one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return range;
};
const frames = async (num) => {
  while (num--) await new Promise(requestAnimationFrame);
};

// Everything that a reader can open or is shown later, but for the lessons above a title.
const open = () => {
  all("details:not(.pb-rail *)").forEach((one) => {
    one.removeAttribute("name");
    one.open = true;
  });
  all("[data-after]").forEach((one) => (one.hidden = false));
};
const openRail = () => all(".pb-rail details").forEach((one) => (one.open = true));
const counts = () => ({
  stages: all(".pb-stage").length,
  plays: all("[data-play]").length,
  columns: Math.max(0, ...all("article tr").map((one) => one.cells.length)),
});

const fits = () => {
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth > clientWidth ? [`${scrollWidth} pixels`] : [];
};

// --- the frame

const left = (chosen) => all(chosen).find((one) => one.checkVisibility());
const edges = () =>
  [
    // On a phone, a button stands before the site's name.
    innerWidth < 600 ? ".md-header__button:first-child svg" : ".md-header__title a",
    "article h1", "article > :last-child", ".md-footer p",
  ].map(left).filter(Boolean).map((one) => box(one).left);

const levels = () => all("article :is(h1, h2, h3, h4, h5, h6)").map((one) => Number(one.tagName[1]));

// Where the title, the first sentence and the line above them stand.
const top = () => {
  const line = contents(document.querySelector("article h1 ~ p, article h1 ~ div p")).getClientRects()[0];
  // The next row of links that have wrapped is nearer to a mark than its own words are.
  const astray = all(":is(article, .pb-sections) [aria-current]").filter(
    (one) => one.checkVisibility() && box(one).bottom - box(contents(one)).bottom > 9
  );
  return {
    title: box(document.querySelector("article h1")).top, sentence: line.top, end: line.bottom,
    rail: document.querySelector(".pb-rail")?.offsetHeight ?? 0, astray: astray.length,
  };
};

// --- tables

const tables = () => {
  const cells = all("article .pb-table :is(th, td)").filter(isShown);
  const leaves = (cell) => {
    const outside = box(cell), inside = box(contents(cell));
    return inside.right > outside.right + 1.5 || inside.left < outside.left - 1.5; // code's ground reaches a pixel beyond
  };
  const ends = (cell) => style(cell).textAlign === "right";
  const stacked = (table) => innerWidth < 600 && table.matches(".pb-stacks");
  const misplaced = (table) =>
    stacked(table) ? [] : all("tbody .pb-number", table).filter((cell) => {
      const head = table.tHead.rows[0].cells[cell.cellIndex];
      return !ends(cell) || (!table.querySelector("[colspan]") && !ends(head));
    });
  const scrolled = all(".pb-scroll").filter(isShown).filter((one) => one.scrollWidth > one.clientWidth + 1);
  // What is said in a cell is in the window; a name below 40 letters may scroll with its numbers.
  const cut = (cell) =>
    cell.textContent.trim().length > 40 && !cell.matches(".pb-number") && box(cell).right > innerWidth + 1;
  // Only numbers scroll, beside the choices of a figure's states, below a column that stays.
  const ofWords = (one) =>
    !one.querySelector(".pb-states") &&
    one.querySelector('tbody td:not(.pb-number, :first-child, [data-label="Verdict"])');
  const leavesHead = (one) => {
    const head = one.querySelector("tbody tr > :first-child");
    one.scrollLeft = 30;
    const apart = Math.abs(box(head).left - box(one).left);
    one.scrollLeft = 0;
    return head.checkVisibility() && apart > 1;
  };
  return {
    "words leave their cell": cells.filter(leaves).map(said),
    "a number and its head end apart": all(".pb-table").filter(isShown).flatMap(misplaced).map(said),
    "a cell is cut": cells.filter(cut).map(said),
    "words scroll": scrolled.filter(ofWords).map(said),
    "names scroll with their numbers": scrolled.filter(leavesHead).map(said),
    "a table is cut and does not scroll": scrolled.filter((one) => !/auto|scroll/.test(style(one).overflowX)).map(said),
    scrolls: scrolled.map((one) => one.querySelector("tr").cells.length),
    cells: cells.length,
  };
};

// What scrolls and can neither take the focus nor hold what takes it.
const unreachable = () => {
  const scrolls = (way, inside, outside) => inside > outside + 1 && /auto|scroll/.test(way);
  return all("article *").filter((one) =>
    one.tabIndex < 0 && !one.querySelector('[tabindex="0"], a[href], button') && one.checkVisibility() &&
    (scrolls(style(one).overflowX, one.scrollWidth, one.clientWidth) ||
      scrolls(style(one).overflowY, one.scrollHeight, one.clientHeight))
  ).map(begins);
};

// --- drawings: words that leave theirs, lie on others, are crossed by a line, or are too small

const unreadable = (svg) => {
  for (let one = svg; one; one = one.parentElement) one.hidden = false;
  const found = [], slack = 1, frame = box(svg);
  const own = (name) => all(name, svg).filter((one) => one.ownerSVGElement === svg); // the played part is a copy
  const words = own("text").map((text) => [text.textContent, box(text)]).filter(([, { height }]) => height);
  const lines = own("line").map(box);
  words.forEach(([said, one], at) => {
    if (one.height < 12) found.push(`too small: ${said}`);
    if (lines.some((line) => line.left < one.right - 1 && line.right > one.left + 1 &&
        line.top < one.bottom - 3 && line.bottom > one.top + 3))
      found.push(`a line crosses: ${said}`);
    if (one.left < frame.left - slack || one.right > frame.right + slack ||
        one.top < frame.top - slack || one.bottom > frame.bottom + slack)
      found.push(`leaves its drawing: ${said}`);
    words.slice(at + 1).forEach(([other, near]) => {
      if (Math.min(one.right, near.right) - Math.max(one.left, near.left) > 0.6 &&
          Math.min(one.bottom, near.bottom) - Math.max(one.top, near.top) > 2)
        found.push(`${said} lies on ${other}`);
    });
  });
  return found;
};
const drawings = () => ({
  wrong: all(".pb-drawing").flatMap(unreadable),
  words: all(".pb-drawing text").length,
});

// The stages of a page that paper lacks, but for those in a fold.
const unprinted = () =>
  all(".pb-stage > .pb-inside")
    .filter((one) => !one.closest("details:not([open], .pb-stage)") && !one.getClientRects().length)
    .map(begins);

// --- words that a reader sees before answering

const APART = `pre, nav, svg, annotation, script, style, template, noscript, .pb-foot, .pb-letters, .pb-numbers, .pb-states,
  .pb-paper, .pb-answer, .pb-hint, .pb-meta, .pb-waits, .pb-contents, .pb-aside.pb-live, button`;
const count = (text) => text.split(/\s+/).filter((one) => /[\p{L}\p{N}]/u.test(one)).length;
const texts = (within) => {
  const walk = document.createTreeWalker(within, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) found.push(walk.currentNode);
  return found;
};
const sentence = (one) => {
  const end = /(?<!\b(?:e\.g|i\.e|vs))[.:;?!](?=\s|$)/.exec(one.textContent), range = contents(one);
  let left = end ? end.index : Infinity;
  const last = texts(one).find((text) => left <= text.length || ((left -= text.length), false));
  if (last) range.setEnd(last, left);
  const first = range.cloneContents();
  return [first.textContent.trim(), count(first.textContent), Boolean(first.querySelector("[data-v]"))];
};
const words = () => {
  const found = { seen: 0, folded: 0, told: 0 }, article = document.querySelector("article");
  for (const text of texts(article)) {
    const parent = text.parentElement;
    if (parent.closest(APART)) continue;
    const num = count(text.textContent);
    found[parent.checkVisibility() ? "seen" : "folded"] += num;
    if (!parent.closest(".pb-question, .pb-backing, .pb-natures")) found.told += num;
  }
  found.gates = all(".pb-waits", article).filter((one) => one.checkVisibility()).length;
  // What opens the page, its sections and its figures.
  const behind = all("h2", article).map((one) => {
    let next = one.nextElementSibling;
    while (next?.matches("div:not([class])")) next = next.firstElementChild;
    return next;
  });
  const opening = [...all(".pb-lede > p:first-child, .pb-caption"), ...behind.filter((one) => one?.matches("p:not([class])"))];
  found.opens = opening.map(sentence);
  return found;
};

// --- figures that play: how they opened, and whether a choice or a step moves anything

const moves = async (root) => {
  const places = new Set(), range = root.querySelector(".pb-player input");
  const [, , forward] = all(".pb-player button", root);
  root.scrollIntoView();
  const isOne = root.matches(".pb-one-state"); // and needs no reserve
  for (let num = 0; num < 300 && !isOne && !root.style.getPropertyValue("--pb-least"); num++) await frames(1);
  await frames(isOne ? 30 : 2); // a fold that has just opened, or another width: the figure measures its states again
  const first = range && JSON.parse(root.querySelector("[data-moments]").dataset.moments)[0][1].split("\n")[0];
  const isLate = range && (range.value !== "0" || root.querySelector(".pb-player p").textContent !== first);
  const look = () => places.add([root.offsetHeight, document.documentElement.scrollHeight,
    root.querySelector(".pb-states-drawn").offsetTop - root.offsetTop].join());
  const go = (to) => {
    range.value = to;
    range.dispatchEvent(new Event("input"));
  };
  const steps = () => {
    look();
    if (range) for (go(0); range.value < 1000; look()) forward.click();
    if (range) go(0);
  };
  steps();
  for (const input of all("fieldset input", root)) {
    input.click();
    await frames(1);
    steps();
  }
  return [...(isLate ? [`${root.id} opens at ${range.value}`] : []),
    ...(places.size > 1 ? [`${root.id} moves: ${[...places].join(" ")}`] : [])];
};
const plays = async () => {
  const found = [];
  for (const root of all("[data-play]")) found.push(...(await moves(root)));
  return found;
};

const asked = { edges, levels, counts, top, fits, tables, unreachable, drawings, unprinted, words, plays };
const ask = async (names) => {
  document.body.style.display = "";
  const found = {};
  for (const name of names) found[name] = await asked[name]();
  return found;
};

window.seen = { ask, open, openRail };
