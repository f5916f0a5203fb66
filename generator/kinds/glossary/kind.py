"""The glossary: its page, and links to it from lessons."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    files={"glossary.yml": ".words:GlossaryFile"},
    reads=".glossary:glossary",
    sheets=".pages:sheets",
    pages={"glossary": PageKind(".pages:glossary", 0.4, names_machines=False)},
    shared={"content/glossary.yml": []},
    slots={"links": ".links:links"},
    styles={"indexes": "Terms"},
)
