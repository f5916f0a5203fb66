// Inside the iframe: what a worker's own scope would offer.
"use strict";
var postMessage = function (data) {
  parent.postMessage(data, "*");
};
var importScripts = function () {
  return Array.prototype.reduce.call(
    arguments,
    function (before, url) {
      return before.then(function () {
        return new Promise(function (resolve, reject) {
          var script = document.createElement("script");
          script.src = url;
          script.onload = resolve;
          script.onerror = reject;
          document.body.appendChild(script);
        });
      });
    },
    Promise.resolve()
  );
};
