// Search runs in a worker, which browsers refuse to pages opened from disk. There, and only there,
// this stands in: an iframe of the same page's making, so that no inline script is needed and the
// Content-Security-Policy stays as it is.
(function () {
  "use strict";
  if (location.protocol !== "file:") return;
  var frameScript = new URL("iframe-worker-frame.js", document.currentScript.src).href;

  function FrameWorker(url) {
    var target = document.createDocumentFragment().appendChild(document.createElement("i"));
    var self = this;
    var frame = document.createElement("iframe");
    frame.hidden = true;
    frame.title = "search";
    document.body.appendChild(frame);
    this.addEventListener = target.addEventListener.bind(target);
    this.removeEventListener = target.removeEventListener.bind(target);
    this.dispatchEvent = target.dispatchEvent.bind(target);
    this.onmessage = null;
    this.onerror = null;
    window.addEventListener("message", function (event) {
      if (event.source !== frame.contentWindow) return;
      var copy = new MessageEvent("message", { data: event.data });
      target.dispatchEvent(copy);
      if (self.onmessage) self.onmessage(copy);
    });
    this.ready = new Promise(function (resolve) {
      frame.contentWindow.onload = resolve;
    });
    this.frame = frame;
    var page = frame.contentDocument;
    page.open();
    page.write(
      '<html><body><script src="' + frameScript + '"></' + 'script>' +
      '<script src="' + new URL(url, location.href).href + '"></' + "script></body></html>"
    );
    page.close();
    this.ready = new Promise(function (resolve) {
      if (page.readyState === "complete") resolve();
      else frame.contentWindow.addEventListener("load", resolve);
    });
  }

  FrameWorker.prototype.postMessage = function (data) {
    var frame = this.frame;
    this.ready.then(function () {
      frame.contentWindow.dispatchEvent(
        new frame.contentWindow.MessageEvent("message", { data: structuredClone(data) })
      );
    });
  };
  FrameWorker.prototype.terminate = function () {
    this.frame.remove();
  };
  window.Worker = FrameWorker;
})();
