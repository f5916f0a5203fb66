// The search waits until somebody goes to it: its worker and its index, which is larger than most
// pages, are loaded on the first focus of its field. The theme asks for both as a page loads; here
// its requests are kept until then. Two scripts are loaded at that moment: search-results.js, which
// reads what the theme and its worker tell each other, and from disk, where browsers refuse workers
// to pages, iframe-worker.js, which stands in.
(function () {
  "use strict";

  const isOnDisk = location.protocol === "file:";
  const own = document.currentScript.src;
  const isIndex = (url) => /\/search_index\.js(on)?$/.test(url);
  const asked = new Promise((resolve) => {
    if (/[?&]q=/.test(location.search)) resolve(); // an address that holds a search
    document.addEventListener("focusin", (event) => event.target.closest(".md-search") && resolve());
  });

  const load = (name) =>
    new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = new URL(name, own).href;
      script.onload = resolve;
      document.head.appendChild(script);
    });

  let Real = window.Worker;
  const ready = asked.then(async () => {
    await load("search-results.js");
    if (!isOnDisk) return;
    await load("iframe-worker.js"); // it takes the name of Worker
    Real = window.Worker;
  });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.begun = ready.then(() => {
        const worker = new Real(url);
        worker.addEventListener("message", ({ data }) => {
          proofbookSearch.finds(data);
          this.dispatchEvent(new MessageEvent("message", { data }));
        });
        return worker;
      });
    }
    postMessage(message) {
      this.begun.then((worker) => {
        proofbookSearch.asks(message);
        worker.postMessage(message);
      });
    }
  };

  if (isOnDisk) {
    const append = document.head.appendChild;
    document.head.appendChild = function (node) {
      if (!isIndex(node.src || "")) return append.call(this, node);
      asked.then(() => append.call(this, node));
      return node;
    };
    return;
  }
  const { open, send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this.isIndex = isIndex(String(url));
    return open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (...content) {
    if (!this.isIndex) return send.apply(this, content);
    asked.then(() => send.apply(this, content));
  };
})();
