// All topics as one queue, on pages that lead to it: how much is due, and a link to where it begins.
(function () {
  "use strict";

  const book = window.proofbook;
  const { say, made, all } = book;
  const place = document.querySelector("[data-queue]");
  const due = () => all(document, "a[data-page$='/recall']").filter((one) => Number(one.dataset.due));

  // Whether the line stands there is decided as the page opens: it moves nothing that is being read.
  place.hidden = !due().length;

  book.queue = function () {
    if (place.hidden) return;
    const links = due();
    const n = links.reduce((sum, one) => sum + Number(one.dataset.due), 0);
    place.textContent = say("queue", { n });
    if (!n) return;
    const start = made("a", "pb-button", book.words.queue_start);
    start.href = `${links[0].getAttribute("href")}#due`;
    place.append(" ", start);
  };

  book.queue();
})();
