// The search waits until somebody goes to it: its worker and its index, which is larger than most
// pages, are loaded on the first focus of its field. The theme asks for both as a page loads; here
// its requests are kept until then. search-results.js, loaded at that moment too, makes the worker.

const results = new URL("search-results.js", document.currentScript.src).href;
const isIndex = (url) => /\/search_index\.js(on)?$/.test(url);
const asked = new Promise((resolve) => {
  if (/[?&]q=/.test(location.search)) resolve(); // an address that holds a search
  document.addEventListener("focusin", (event) => event.target.closest(".md-search") && resolve());
});

const ready = asked.then(() => new Promise((resolve) => {
  document.head.append(Object.assign(document.createElement("script"), { src: results, onload: resolve }));
}));

const Native = window.Worker;
window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const tell = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.ask = ready.then(() => proofbookSearch(Native, url, tell));
  }
  postMessage(message) {
    this.ask.then((ask) => ask(message));
  }
};

if (location.protocol === "file:") {
  const append = document.head.appendChild;
  document.head.appendChild = function (node) {
    if (!isIndex(node.src || "")) return append.call(this, node);
    asked.then(() => append.call(this, node));
    return node;
  };
} else {
  const { open } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    const send = this.send.bind(this);
    if (isIndex(String(url))) this.send = (...content) => asked.then(() => send(...content));
    return open.call(this, method, url, ...rest);
  };
}
