// What the scripts of a page share. Pages load the scripts whose markup they hold as one file, each as a
// function of its own, in strict mode (`publish.py`); before a script stand the words that it says.

book.all = (within, selector) => [...within.querySelectorAll(selector)];

book.made = (name, css, ...content) => {
  const element = document.createElement(name);
  if (css) element.className = css;
  element.append(...content);
  return element;
};

// Load a script when a reader comes to need it; a path is loaded once.
const loaded = new Set();
book.load = (src, onload, onerror) => {
  if (!loaded.has(src)) document.head.append(Object.assign(book.made("script"), { src, onload, onerror }));
  loaded.add(src);
};

// What a reader has chosen stands in the address, by name, so that it is a link to this state.
book.kept = (name) => new URLSearchParams(location.search).getAll(name);
book.keep = (place, chosen) => {
  const kept = new URLSearchParams(location.search);
  Object.entries(chosen).forEach(([name, values]) => {
    kept.delete(name);
    values.forEach((value) => kept.append(name, value));
  });
  history.replaceState(history.state, "", `${location.pathname}?${kept}#${place}`.replace("?#", "#"));
};

// The theme opens all folds for paper; those that a reader left closed stay closed (print.css).
window.addEventListener(
  "beforeprint",
  () => book.all(document, "details").forEach((one) => one.classList.toggle("pb-closed", !one.open)),
  true,
);

// Material's buttons of each listing stand in a landmark: of a page with several listings, all have one name.
new MutationObserver(() => book.all(document, "nav.md-code__nav").forEach((nav) => (nav.role = "none"))).observe(
  document.body,
  { childList: true, subtree: true },
);
