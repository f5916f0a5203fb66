// Commands: a button copies the one before it, also one that a choice brings later.

document.addEventListener("click", ({ target }) => {
  if (!target.dataset.copies) return;
  getSelection().selectAllChildren(target.previousElementSibling);
  if (document.execCommand("copy")) target.textContent = target.dataset.copies;
});
