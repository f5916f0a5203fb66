"""Evidence: the claims by experiment, the runs of each, and the machines."""

from proofbook.runners.system.kinds import Kind, PageKind

# In the search these stand below whatever a lesson says of a word.
_PAGE = PageKind("", 0.0005, names_machines=False, names_each=True)

KIND = Kind(
    sheets=".claims_page:sheets",
    pages={
        "evidence": _PAGE._replace(compose=".claims_page:evidence"),
        "runs": _PAGE._replace(compose=".machines:runs"),
        "machine": _PAGE._replace(compose=".machines:machine"),
        "machines": PageKind(".machines:machines", 0.0005),
    },
    shared={"content/references.yml": ["evidence.md"]},
)
