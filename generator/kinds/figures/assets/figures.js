// Charts: each mark tells its value under the pointer and under the keyboard; without this file the
// same values stand in a table.

const { all, made } = book;
const NEAR = 32; // pixels from the pointer to a mark that it means
// One tooltip for all charts. It stays while the pointer is on it, and Escape puts it away.
const tip = made("div", "pb-tip");
let told; // the mark that it tells
tip.role = "tooltip";
tip.addEventListener("pointerleave", hide);

function hide() {
  told?.removeAttribute("data-told");
  told = null;
  tip.remove();
}

function tell(mark) {
  if (mark === told) return;
  hide();
  if (!mark) return;
  told = mark;
  mark.setAttribute("data-told", "");
  tip.textContent = mark.dataset.say;
  const figure = mark.closest(".pb-figure");
  figure.append(tip);
  const around = figure.getBoundingClientRect();
  const place = mark.getBoundingClientRect();
  const left = place.left + place.width / 2 - tip.offsetWidth / 2 - around.left;
  tip.style.left = `${Math.max(0, Math.min(left, around.width - tip.offsetWidth))}px`;
  tip.style.top = `${place.top - around.top - tip.offsetHeight - 6}px`;
}

function distance(mark, { clientX, clientY }) {
  const { left, right, top, bottom } = mark.getBoundingClientRect();
  return Math.hypot(Math.max(left - clientX, 0, clientX - right), Math.max(top - clientY, 0, clientY - bottom));
}

// A chart is one stop of the Tab key; arrow keys go from mark to mark.
book.chart = (svg) => {
  const marks = all(svg, "[data-say]");
  if (!marks.length) return;
  svg.role = "group";
  svg.tabIndex = -1; // or Chromium makes a stop of it, because it listens to the focus
  marks.forEach((mark, position) => {
    Object.assign(mark, { role: "img", ariaLabel: mark.dataset.say, tabIndex: position ? -1 : 0 });
  });
  svg.addEventListener("pointermove", (event) => {
    const by = marks.map((mark) => distance(mark, event));
    const least = Math.min(...by);
    tell(least < NEAR ? marks[by.indexOf(least)] : null);
  });
  svg.addEventListener("pointerleave", ({ relatedTarget }) => relatedTarget !== tip && hide());
  svg.addEventListener("focusin", ({ target }) => tell(marks.find((mark) => mark === target)));
  svg.addEventListener("focusout", hide);
  svg.addEventListener("keydown", (event) => book.rove(event, marks));
};

all(document, ".pb-figure svg").forEach(book.chart);
document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
