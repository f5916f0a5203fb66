// The glossary shows the terms with a word that begins as one types; without this file, all of them.
(function () {
  "use strict";

  const form = document.querySelector("[data-narrows]");
  const field = form.querySelector("input");
  const terms = [...document.querySelectorAll(".pb-terms > dt")];
  const said = (term) => ` ${term.textContent} ${term.nextElementSibling.firstElementChild.textContent}`.toLowerCase();

  function narrow() {
    const typed = field.value.trim().toLowerCase();
    for (const term of terms) term.hidden = term.nextElementSibling.hidden = !said(term).includes(` ${typed}`);
    form.querySelector("output").textContent = typed ? `${terms.filter((one) => !one.hidden).length} / ${terms.length}` : "";
  }

  form.hidden = false;
  field.addEventListener("input", narrow);
  window.addEventListener("hashchange", () => {
    field.value = ""; // a link into the page leads to a term, which may be hidden
    narrow();
  });
})();
