// Formulas: each is copied whole, as its LaTeX, which stands in its place while the browser copies.
// Without this file, their letters are copied, each on a line.

document.addEventListener("copy", () => {
  const selection = getSelection();
  if (selection.isCollapsed) return;
  const range = selection.getRangeAt(0);
  const copied = [...document.querySelectorAll("math")].filter((math) => range.intersectsNode(math));
  const written = copied.map((math) => {
    const mark = math.matches("[display]") ? "$$" : "$";
    const latex = document.createElement("span");
    latex.textContent = mark + math.querySelector("annotation").textContent + mark;
    if (math.contains(range.startContainer)) range.setStartBefore(math);
    if (math.contains(range.endContainer)) range.setEndAfter(math);
    math.before(latex);
    math.style.display = "none";
    return latex;
  });
  // A browser may lose the ends of a selection when nodes are put into it.
  const select = () => {
    selection.removeAllRanges();
    selection.addRange(range);
  };
  select();
  requestAnimationFrame(() => {
    written.forEach((latex) => latex.remove());
    copied.forEach((math) => (math.style.display = ""));
    select();
  });
});
