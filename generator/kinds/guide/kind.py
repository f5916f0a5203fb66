"""The guide: from a symptom, by questions about a run, to a technique."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    files={"guide.yml": ".words:GuideFile"},
    known={"technique": ".guide:techniques", "symptom": ".guide:symptoms"},
    mistakes={".words:GuideFile": ".guide:mistakes"},
    mistakes_after=".guide:missing_sections",
    sheets=".pages:sheets",
    pages={"guide": PageKind(".pages:guide", 0.4), "symptom": PageKind(".pages:symptom", 0.15)},
    shared={"content/guide.yml": ["guide"]},
    slots={"below decisions": ".pages:lead"},
    scripts={"sources": "TechniqueTable"},
    styles={"indexes": "RunQuestions"},
)
