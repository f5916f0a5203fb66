// Where a number comes from. Each value is a link to its run; with this file it opens its source in
// the one popover of the page, filled from the data at the page's end. And a table is one stop of the
// Tab key: arrow keys go from link to link in it.
(function () {
  "use strict";

  const words = window.proofbook.source;
  const block = document.getElementById("pb-sources");
  const data = block ? JSON.parse(block.textContent) : null;
  const box = document.createElement("div");
  let opener = null; // what the popover belongs to
  let wasOpen = false; // when the pointer went down on it

  function made(name, content, href) {
    const element = document.createElement(name);
    if (href) element.href = href;
    element.append(content);
    return element;
  }

  // As generator/evidence/sources.py writes them.
  const run = (at) => {
    const [machine, experiment, name, recorded, torch, elsewhere] = data.runs[at];
    return { machine, experiment, name, recorded, torch, elsewhere };
  };
  const value = (at) => {
    const [text, kind, formula, of, again, exact, absent, nature] = data.values[at];
    return { text, kind, formula, of, again, exact, absent, nature };
  };
  const isRead = (one) => typeof one.of === "number";
  const path = (one) => {
    const { experiment, name } = run(one.of);
    return [experiment, name, one.formula].filter(Boolean).join(".");
  };

  function rowsOf(one) {
    const rows = [];
    const code = (name, text) => rows.push([name, made("code", text)]);
    const traces = new Map();
    const trace = ({ machine, experiment }) => {
      if (!experiment) return;
      const href = `${data.root}traces/${machine}/${experiment}.json`;
      traces.set(href, made("a", `${experiment}.json`, href));
    };
    if (one.absent) rows.push([words.why, one.absent]);
    if (one.nature) rows.push([words.nature, words.natures[one.nature]]);
    if (one.exact) rows.push([words.exactly, one.exact === 1 ? one.text : one.exact]);
    if (isRead(one)) {
      const { machine, experiment, name, recorded, torch, elsewhere } = run(one.of);
      const place = `${data.root}evidence/${experiment}.html#run-${experiment}-${name}${elsewhere || ""}`;
      code(words.from, [experiment, name, one.formula].filter(Boolean).join(" · "));
      rows.push([words.on, experiment ? `${machine}, ${recorded}, torch ${torch}` : machine]);
      if (name) rows.push([words.run, made("a", name, place)]);
      trace(run(one.of));
    } else if (one.kind === 4) {
      rows.push([words.source, one.formula]);
    } else {
      const inputs = (one.of || []).map(value);
      const machines = new Set();
      code(words.formula, one.formula);
      inputs.forEach((input) => {
        const row = document.createElement("span");
        row.append(made("code", isRead(input) ? path(input) : input.formula));
        row.append(` = ${input.text} (${words.kinds[input.kind].split(/\W/)[0]})`);
        rows.push([words.from, row]);
        if (!isRead(input)) return;
        machines.add(run(input.of).machine);
        trace(run(input.of));
      });
      machines.forEach((machine) => rows.push([words.on, machine]));
    }
    if (one.again) {
      const name = made("a", isRead(one) ? words.repeat : words.repeat_inputs, `${data.root}index.html#repeat`);
      code(name, `${data.command} ${one.again === 1 ? path(one) : one.again}`);
    }
    traces.forEach((link) => rows.push([words.trace, link]));
    return rows;
  }

  function fill(number, shown) {
    const one = value(number);
    const list = document.createElement("dl");
    const head = made("p", made("b", one.text || shown));
    head.append(`: ${words.kinds[one.kind]}`);
    rowsOf(one).forEach(([name, said]) => list.append(made("dt", name), made("dd", said)));
    box.replaceChildren(head, list);
  }

  // Below its number where the window allows; on a phone, a sheet at its foot (values.css).
  function put(at) {
    const place = at.getClientRects()[0];
    const gap = 5;
    const isBelow = place.bottom + gap + box.offsetHeight < innerHeight || place.top < box.offsetHeight;
    const top = isBelow ? place.bottom + gap : place.top - gap - box.offsetHeight;
    const left = Math.max(gap, Math.min(place.left, innerWidth - box.offsetWidth - 4 * gap));
    box.style.setProperty("--pb-top", `${top + scrollY}px`);
    box.style.setProperty("--pb-left", `${left + scrollX}px`);
  }

  function open(at, number) {
    fill(number, at.textContent);
    if (box.matches(":popover-open")) box.hidePopover();
    // Behind the block that it belongs to, so that the Tab key goes on from there.
    (at.closest("figure, table, dl, ul, ol, p, label, blockquote, details") || at).after(box);
    box.showPopover();
    put(at);
    opener = at;
    box.focus();
  }

  if (data && box.showPopover) {
    box.className = "pb-source";
    box.popover = "auto";
    box.tabIndex = -1;
    box.setAttribute("role", "dialog");
    box.setAttribute("aria-label", words.title);
    window.proofbook.open = open;
    document.addEventListener(
      "pointerdown",
      (event) => (wasOpen = box.matches(":popover-open") && opener === event.target.closest("[data-v]")),
      true
    );
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-v]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      if (!wasOpen) open(link, link.dataset.v);
      wasOpen = false;
    });
    box.addEventListener("toggle", (event) => {
      if (event.newState === "closed" && opener && box.contains(document.activeElement)) opener.focus();
    });
  }

  // A link to a claim of the index goes on to its numbers; one into a fold opens it.
  function arrive() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const row = target.closest("tr.pb-one");
    const link = row && row.querySelector("a");
    const fold = target.closest("details");
    if (link) location.replace(link.href);
    else if (fold) fold.open = true;
  }
  window.addEventListener("hashchange", arrive);
  arrive();

  document.querySelectorAll(".md-content table, .pb-facts, .pb-claim-facts").forEach((table) => {
    if (table.parentElement.closest("table")) return;
    const links = Array.from(table.querySelectorAll("a[href]"));
    const frame = table.closest(".pb-scroll");
    if (frame && links.length) frame.removeAttribute("tabindex");
    links.forEach((link, at) => (link.tabIndex = at ? -1 : 0));
    table.addEventListener("keydown", (event) => {
      const at = links.indexOf(event.target);
      const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1 };
      to.Home = 0;
      to.End = links.length - 1;
      const next = at < 0 || event.altKey || event.ctrlKey || event.metaKey ? null : links[to[event.key]];
      if (!next) return;
      event.preventDefault();
      links[at].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
})();
