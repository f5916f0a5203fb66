"""The search of the site."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    slots={"index": ".index:files"},
    polyfills=["assets/lazy-iframe-worker.js"],  # loaded on first focus; `offline` wants the name
)
