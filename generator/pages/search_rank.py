"""How pages rank in the search: what their scores are multiplied by.

The number stands in each page's front matter as `search: boost:`, where Material's search reads it.
Among the entries of pages of one rank, `fields` in `mkdocs.yml` decides: how much more a word
counts in a heading than in the text.
"""

from __future__ import annotations

LESSON = 1.0  # pages that explain; those that mostly ask rank lower
_BY_TEMPLATE = {
    "deep.md.j2": 1.05,
    "cost.md.j2": 0.8,
    "try.md.j2": 0.6,
    "challenge.md.j2": 0.6,
    "glossary.md.j2": 0.4,
    "guide.md.j2": 0.4,
    "symptom.md.j2": 0.15,
    "home.md.j2": 0.3,
    "topics.md.j2": 0.3,
    "topic.md.j2": 0.2,
    "recall.md.j2": 0.1,
    "summary.md.j2": 0.1,
    "plan.md.j2": 0.3,
    "planned.md.j2": 0.05,
    "published.md.j2": 0.05,
    "steps.md.j2": 0.05,
    "retracted.md.j2": 0.002,  # from here on, below whatever a lesson says of a word
    "evidence.md.j2": 0.0005,
    "runs.md.j2": 0.0005,
    "machines.md.j2": 0.0005,
    "machine.md.j2": 0.0005,
}


def boost(template: str) -> float:
    """What a page's scores are multiplied by: that of a lesson where nothing else is said."""
    return _BY_TEMPLATE.get(template, LESSON)
