// Lists that narrow to the entries with a word that begins as one types: the terms of the glossary,
// statements. Without this file, all of them are shown.

const form = document.querySelector("[data-narrows]");
const field = form.querySelector("input");
const entries = [...document.querySelectorAll(form.dataset.narrows)].map((entry) => {
  const copy = entry.cloneNode(true);
  copy.querySelectorAll("details, [data-search-exclude]").forEach((one) => one.remove());
  return [entry, ` ${copy.textContent}`.replace(/[\s-]+/g, " ").toLowerCase()];
});

function narrow() {
  const typed = field.value.trim().replace(/-/g, " ").toLowerCase();
  for (const [entry, said] of entries) entry.hidden = !said.includes(` ${typed}`);
  const shown = entries.filter(([entry]) => !entry.hidden);
  const says = form.dataset.says.replace("{n}", shown.length).replace("{m}", entries.length);
  form.querySelector("output").textContent = typed ? says : "";
}

form.hidden = false;
field.addEventListener("input", narrow);
addEventListener("pageshow", narrow); // a browser that comes back brings what was typed
addEventListener("hashchange", () => {
  field.value = ""; // a link into the page leads to an entry, which may be hidden
  narrow();
});
