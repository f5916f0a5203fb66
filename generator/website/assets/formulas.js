// Formulas: each is copied whole, as its LaTeX, which stands before it while the browser copies.
// Without this file, their letters are copied, each on a line.

document.addEventListener("copy", () => {
  const selection = getSelection();
  if (selection.isCollapsed) return;
  const range = selection.getRangeAt(0);
  const copied = book.all(document, "math").filter((math) => range.intersectsNode(math));
  copied.forEach((math) => {
    const mark = math.matches("[display]") ? "$$" : "$";
    if (math.contains(range.startContainer)) range.setStartBefore(math);
    if (math.contains(range.endContainer)) range.setEndAfter(math);
    math.before(mark + math.querySelector("annotation").textContent + mark);
    math.style.display = "none";
  });
  // A browser may lose the ends of a selection when nodes come before them.
  selection.removeAllRanges();
  selection.addRange(range);
  requestAnimationFrame(() =>
    copied.forEach((math) => {
      math.previousSibling.remove();
      math.style.display = "";
    })
  );
});
