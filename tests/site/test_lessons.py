"""Lessons are short, begin with title and a sentence to keep, and wait for one answer at most.

Words are those that a reader sees at 1280 before answering. Programs, outputs, drawings, navigation
and the numbers behind a figure are no words of a lesson, nor is what a question says once answered.
"""

import math
import re
from collections import Counter

import pytest

pytestmark = pytest.mark.browser
# A laptop at twice its size, a phone, a laptop: a window's height is what a reader sees at once.
HEIGHTS = {"640": 450, "390": 844, "1280": 800}
MOST = {"title": 140, "sentence": 320, "rail": 30, "astray": 0}  # pixels from the top; of the line
LIMITS = {
    "learn": 900, "trace": 900, "why": 1100, "cost": 900, "experiment": 1200, "try": 900,
    "deep": 1500,
}  # fmt: skip
# Words that the lessons of a topic told, questions and evidence apart, before Deep was divided. A
# quarter of them is gone.
BEFORE = {
    "communication-and-time": 7887, "ddp": 9841, "large-models": 13592, "multi-gpu": 8686,
    "pipeline-parallelism": 8455, "sharding": 10273,
}  # fmt: skip
# Topics that were written after that, and the most that they may tell; tables of figures count,
# and the line in which a figure says its one number.
SINCE = {
    "tensor-parallelism": 8020, "meshes-and-experts": 10340, "long-runs": 11100,
    "long-sequences": 10200, "precision": 12600,
}  # fmt: skip
APART = ("index", "lab", "recall", "summary")
NUM_WORDS_IN_A_SENTENCE = 25


def _lessons(seen):
    """The pages of topics: topic, mode, path, and what was seen."""
    for name, one in seen.items():
        if found := re.fullmatch(r"topics/(.+)/(\w+).*\.html", name):
            yield *found.groups(), name, one


def test_title_and_first_sentence_of_every_lesson_stand_on_the_first_screen(seen):
    """One line, the title and the first sentence, and nothing else stands above."""
    tops = {name: one["tops"] for *_, name, one in _lessons(seen)}
    tops["first-run.html"] = seen["first-run.html"]["tops"]
    low = {
        (name, width): top
        for name, widths in tops.items()
        for width, top in widths.items()
        if top["end"] > HEIGHTS[width] or any(top[part] > most for part, most in MOST.items())
    }
    assert low == {}
    assert len(tops) > 100


def test_a_lesson_keeps_to_its_limit_and_waits_for_one_answer_at_most(seen):
    for _, mode, name, one in _lessons(seen):
        words = one["words"]
        assert max(words["seen"], words["folded"]) <= LIMITS.get(mode, math.inf), name
        assert words["gates"] <= 1, name


def test_a_topic_says_a_quarter_less_than_it_did(seen):
    """Recall and the summary repeat others."""
    told = Counter()
    for topic, mode, _, one in _lessons(seen):
        told[topic] += one["words"]["told"] * (mode not in APART)
    most = {topic: 0.75 * num for topic, num in BEFORE.items()} | SINCE
    assert {topic: num for topic, num in told.items() if num > most[topic]} == {}
    assert told.keys() == most.keys()


def test_pages_sections_and_figures_open_with_a_sentence_to_keep(seen):
    long = {
        name: said
        for *_, name, one in _lessons(seen)
        for said, num, has_value in one["words"]["opens"]
        if has_value or num > NUM_WORDS_IN_A_SENTENCE
    }
    assert long == {}
