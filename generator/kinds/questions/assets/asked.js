// The questions of a page: each form becomes one that is asked, what waits for an answer is hidden until then,
// and paper has the answers at its end.

const { words, store, made, all } = book;

// Shows what waits for an answer: once it is there, where the reader wants to see everything, or
// where a link leads into it or to its heading. One line stands for all parts side by side that
// wait, all of them for one answer; it says what they are, and its button shows them.
function open() {
  const aim = document.getElementById(location.hash.slice(1));
  let parts, shown, before;
  waiting.forEach((one) => {
    const line = one.nextElementSibling;
    const above = one.previousElementSibling || one;
    if (aim && (one.contains(aim) || above === aim)) one.dataset.meant = ""; // wherever the next link leads
    const isAsked = document.querySelector(`:not([data-done]) > form[data-item="${one.dataset.after}"]:not([data-open])`);
    const waits = Boolean(isAsked) && !store.chosen("show-all") && !("meant" in one.dataset);
    if (waits !== one.hidden) one.open = !waits;
    one.hidden = waits;
    if (!line || !line.dataset.what) return;
    line.hidden = !waits || above === before || above.previousElementSibling === before;
    if (!waits) return;
    if (!line.hidden) {
      const own = (parts = []);
      shown = line.querySelector("span");
      shown.textContent = "";
      line.lastElementChild.onclick = () => {
        own.forEach((part) => (part.dataset.meant = ""));
        open();
        one.tabIndex = -1;
        one.focus({ preventScroll: true }); // its heading may stand above
      };
    }
    parts.push(one, ...all(one, "[data-after]"));
    shown.append(shown.textContent && "\u00a0· ", line.dataset.what);
    before = line;
  });
  // A heading that waits is not listed among the page's contents either.
  const lists = waiting.length ? all(document, ".md-nav--secondary li, .pb-contents li") : [];
  lists.forEach((one) => {
    const heading = document.getElementById(decodeURI(one.firstElementChild.hash).slice(1));
    one.hidden = Boolean(heading) && !heading.offsetHeight && !heading.closest("details");
  });
}

all(document, "[data-show-all]").forEach((box) => {
  box.closest("[hidden]").hidden = false;
  box.checked = Boolean(store.chosen("show-all"));
  box.addEventListener("change", () => {
    store.set("show-all", box.checked);
    open();
  });
});

// ——— Paper ———

// On paper nothing is answered. The answers begin a sheet of their own at the end: the browser's own
// dialog prints the sheets that a reader names.
let keys;

addEventListener("beforeprint", () => {
  book.live.forEach(({ box, pristine }) => box.replaceWith(pristine));
  const end = document.getElementById("pb-sure");
  if (!end || keys) return;
  const list = made("ol");
  keys = made("section", "pb-keys", made("h2", "", words.answers), list);
  all(document, ".pb-question").forEach((box) => {
    const line = made("li");
    const { item } = box.querySelector("form").dataset;
    all(document, `#${box.id} .pb-answer > .pb-inside, details[data-after="${item}"]:not(.pb-seen) > .pb-inside`).forEach((one) =>
      line.append(one.cloneNode(true))
    );
    list.append(line);
  });
  end.after(keys);
});

addEventListener("afterprint", () => {
  book.live.forEach(({ box, pristine }) => pristine.replaceWith(box));
  keys?.remove();
  keys = null;
});

const waiting = all(document, "[data-after]");
waiting.forEach((one) => (one.hidden = true));
const forms = (within) => all(within, "form.pb-item:not([data-open])");
book.unasked = (within) => forms(within).map((form) => new book.Unasked(form));
book.open = open;
forms(document).forEach((form) => form.closest("[data-recall]") || new book.Question(form).restore());
open();
addEventListener("hashchange", () => {
  open();
  document.getElementById(location.hash.slice(1))?.scrollIntoView(); // it may have been hidden until now
});
