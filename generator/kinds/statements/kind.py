"""Sentences that people read, each judged by a run."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    files={"statements.yml": ".words:StatementFile"},
    reads=".pages:statements",
    known={"statement": ".pages:ids"},
    mistakes={".words:StatementFile": ".pages:mistakes"},
    programs=".pages:programs",
    sheets=".pages:sheets",
    # In the search below whatever a lesson says of a word.
    pages={"retracted": PageKind(".pages:retracted", 0.002)},
    shared={"content/statements.yml": ["retracted.md"]},
)
