// In place of the theme's worker: search.js, loaded on the first focus of the search's field, with those
// parts of the index that a search needs. The plugin offline wants the name, else it asks another site.

const SETUP = 0; // the kinds of message that the theme and its worker send each other
const READY = 1;
const QUERY = 2;
const RESULT = 3;
const engine = new URL("search.js", document.currentScript.src).href;
const asked = new Promise((resolve) => {
  if (/[?&]q=/.test(location.search)) resolve(); // an address that holds a search
  document.addEventListener("focusin", (event) => event.target.closest(".md-search") && resolve());
});
const ready = asked.then(() => new Promise((resolve) => {
  document.head.append(Object.assign(document.createElement("script"), { src: engine, onload: resolve }));
}));

window.Worker = class extends EventTarget {
  async postMessage({ type, data }) {
    const tell = (message) => this.dispatchEvent(new MessageEvent("message", { data: message }));
    if (type === SETUP) ready.then(() => tell({ type: READY }));
    if (type !== QUERY) return;
    this.typed = data;
    await ready;
    const items = await proofbookSearch.find(data);
    if (this.typed === data) tell({ type: RESULT, data: { items } }); // else somebody typed on
  }
};
