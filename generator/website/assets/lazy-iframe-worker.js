// The search waits until somebody goes to it: its worker and its index, which is larger than most
// pages, are loaded on the first focus of its field. The theme asks for both as a page loads; here
// its requests are kept until then. From disk, where browsers refuse workers to pages,
// iframe-worker.js stands in, loaded at that moment too.
(function () {
  "use strict";

  const isOnDisk = location.protocol === "file:";
  const standIn = new URL("iframe-worker.js", document.currentScript.src).href;
  const isIndex = (url) => /\/search_index\.js(on)?$/.test(url);
  const asked = new Promise((resolve) => {
    if (/[?&]q=/.test(location.search)) resolve(); // an address that holds a search
    document.addEventListener("focusin", (event) => event.target.closest(".md-search") && resolve());
  });

  let Real = window.Worker;
  const ready = asked.then(() => {
    if (!isOnDisk) return null;
    return new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = standIn; // it takes the name of Worker
      script.onload = () => resolve((Real = window.Worker));
      document.head.appendChild(script);
    });
  });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.begun = ready.then(() => {
        const worker = new Real(url);
        worker.addEventListener("message", ({ data }) => this.dispatchEvent(new MessageEvent("message", { data })));
        return worker;
      });
    }
    postMessage(message) {
      this.begun.then((worker) => worker.postMessage(message));
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
