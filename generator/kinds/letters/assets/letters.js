// What the letters of a formula stand for, beside it while it is pointed at or focused. Without this file,
// the list at the end of the page says it.

const { all, made } = book;
const list = document.querySelector(".pb-letters");
const box = Object.assign(made("div", "pb-source"), { id: "pb-letters", popover: "auto", role: "tooltip" });
const namesIn = (math) => [...new Set(all(math, "mi, mtext").map((one) => one.textContent))];
const meanings = new Map(all(list, "span").map((one) => [namesIn(one)[0], one]));
const met = new Set(); // letters of formulas above; the Tab key stops at the first formula of each

list.after(box);
all(document, ".md-content math").forEach((math) => {
  const names = namesIn(math).filter((name) => meanings.has(name));
  if (!names.length || list.contains(math)) return;
  math.onpointerenter = math.onfocus = () => {
    box.replaceChildren(...names.map((name) => made("p", "", meanings.get(name).cloneNode(true))));
    box.togglePopover(true);
    book.put(box, math.querySelector("mi, mtext"));
  };
  math.onpointerleave = math.onblur = () => box.togglePopover(false);
  math.setAttribute("aria-describedby", box.id);
  if (!math.closest("a, label, summary, button, legend") && names.some((name) => !met.has(name))) math.tabIndex = 0;
  names.forEach((name) => met.add(name));
});
