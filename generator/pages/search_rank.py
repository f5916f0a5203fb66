"""How pages rank in the search: what their scores are multiplied by.

The number stands in each page's front matter as `search: boost:`. How much more a word counts in a
heading than in the text, `assets/search-results.js` says. The numbers were chosen by searches of
`tests/site/searches.yml`, each without the leads that it brings to the first place.
"""

from __future__ import annotations

HEARD = 0.1  # from here on, words of tables, programs and what waits for an answer count
LESSON = 1.0  # pages that explain; those that mostly ask rank lower
_BY_TEMPLATE = {
    "learn.md.j2": 1.2,
    "deep.md.j2": 1.05,
    "cost.md.j2": 0.9,
    "worked.md.j2": 1.1,
    "why.md.j2": 0.4,
    "trace.md.j2": 0.45,
    "try.md.j2": 0.4,
    "challenge.md.j2": 0.3,
    "glossary.md.j2": 0.7,
    "guide.md.j2": 0.8,
    "symptom.md.j2": 1.6,
    "home.md.j2": 0.4,
    "topics.md.j2": 0.4,
    "topic.md.j2": 0.2,
    "recall.md.j2": 0.05,
    "summary.md.j2": 0.3,
    "plan.md.j2": 0.2,
    "planned.md.j2": 1.0,
    "published.md.j2": 0.3,
    "steps.md.j2": 0.3,
    "retracted.md.j2": 0.2,
    "evidence.md.j2": 0.15,
    "runs.md.j2": 0.02,
    "machines.md.j2": 0.05,
    "machine.md.j2": 0.05,
}


def boost(template: str) -> float:
    """What a page's scores are multiplied by: that of a lesson where nothing else is said."""
    return _BY_TEMPLATE.get(template, LESSON)
