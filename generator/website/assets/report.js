// Reports: a text about a question, to copy and to send in any way one likes. Nothing leaves the page.
(function () {
  "use strict";

  const book = window.proofbook;
  const { made, filled, reporting: words } = book;

  book.report = function ({ id, digest, box, pristine, status }) {
    const asked = pristine.querySelector(".pb-asked").cloneNode(true); // without verdicts on options
    book.all(asked, "button, option, .pb-paper").forEach((one) => one.remove());
    const plain = (element) => element.innerText.replace(/\s+/g, " ").trim();
    const dialog = made("dialog", "md-typeset pb-report");
    const text = made("textarea");
    const said = made("p", "pb-status");
    const button = (name, act) => {
      const one = made("button", "pb-button", name);
      one.addEventListener("click", act);
      return one;
    };
    text.rows = 10;
    text.value = filled(words.report_text, {
      id, digest, page: `${location.href.split("#")[0]}#${box.id}`,
      asks: plain(asked), said: plain(status),
    });
    text.setAttribute("aria-label", book.words.report);
    said.setAttribute("role", "status");
    const copy = () => {
      text.select();
      said.textContent = document.execCommand("copy") ? words.copied : words.not_copied;
    };
    dialog.setAttribute("aria-label", book.words.report);
    dialog.append(made("p", "", words.report_how), text, button(words.copy, copy), " ");
    dialog.append(button(words.close, () => dialog.close()), said);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    text.focus();
  };
})();
