// All answers as a file, out and in again, or deleted. Recall loads this once a reader asks for it.
(function () {
  "use strict";

  const book = window.proofbook;
  const { store, say, made, words, button, offer, sum } = book;
  const done = document.querySelector("[data-recall-done]");
  const LARGEST = 5e6; // bytes of a file

  function saved() {
    const items = {};
    store.ids().forEach((id) => (items[id] = store.get(id)));
    const text = JSON.stringify({ proofbook: 1, exported_at: new Date().toISOString(), items, later: store.later() }, null, 1);
    const link = made("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "proofbook-answers.json";
    link.click();
    done.textContent = say("exported", { n: store.ids().length });
  }

  // Everything in a file is checked before anything of it is kept; of each item the newer stays.
  function taken(text) {
    const found = JSON.parse(text);
    if (found.proofbook > 1) return words.import_newer;
    const ids = Object.keys(found.items);
    const isSound = (id) => store.isId(id) && store.isSound(found.items[id]);
    const isWhole = ids.every(isSound) && (found.later === undefined || store.isLater(found.later));
    if (found.proofbook !== 1 || !isWhole) return words.import_foreign;
    const last = (one) => one.attempts[one.attempts.length - 1].at;
    const newer = ids.filter((id) => !store.get(id) || last(store.get(id)) < last(found.items[id]));
    const kept = newer.filter((id) => store.put(id, found.items[id]));
    store.set("later", { ...found.later, ...store.later() });
    offer("");
    return say("imported", { n: newer.length }) + (kept.length < newer.length ? ` ${words.unkept}` : "");
  }

  function take(field) {
    const [file] = field.files;
    const reader = new FileReader();
    reader.addEventListener("loadend", () => {
      try {
        done.textContent = taken(reader.result);
      } catch (error) {
        done.textContent = words.import_foreign;
      }
    });
    if (file && file.size > LARGEST) done.textContent = words.import_large;
    else if (file) reader.readAsText(file);
    field.value = "";
  }

  function remove(opener) {
    const answered = (text) => () => {
      if (text === words.deleted) {
        store.clear();
        offer("");
        sum();
      }
      done.textContent = text;
      opener.focus();
    };
    const yes = button(words.delete_yes, answered(words.deleted));
    done.textContent = say("delete_sure", { n: store.ids().length });
    done.append(" ", yes, " ", button(words.delete_no, answered(words.delete_kept)));
    yes.focus();
  }

  book.answers = { export: saved, take, remove };
})();
