"""The letters of formulas: what each stands for, at a formula and below its page."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    mistakes={"proofbook.generator.content.words:Written": ".letters:mistakes"},
    slots={"letters": ".letters:of_topic"},
    scripts={"letters": "Letters", "sources": "Letters"},  # which puts its box into place
)
