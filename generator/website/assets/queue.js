// All topics as one queue, on pages that lead to it: how much is due, and a link to where it begins.
(function () {
  "use strict";

  const book = window.proofbook;
  const { say, made, all } = book;
  const place = document.querySelector("[data-queue]");

  book.queue = function () {
    const links = all(document, "a[data-page$='/recall']").filter((one) => Number(one.dataset.due));
    if ((place.hidden = !links.length)) return;
    const n = links.reduce((sum, one) => sum + Number(one.dataset.due), 0);
    const start = made("a", "pb-button", book.words.queue_start);
    start.href = `${links[0].getAttribute("href")}#due`;
    place.textContent = say("queue", { n });
    place.append(" ", start);
  };

  book.queue();
})();
