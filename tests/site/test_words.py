"""Lessons are short, begin with the sentence to keep, and wait for one answer at most.

Words are those that a reader sees at 1280 before answering. Programs, outputs, drawings, navigation
and the numbers behind a figure are no words of a lesson, nor is what a question says once answered.
"""

import pytest

pytestmark = pytest.mark.browser
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
APART = ("index", "lab", "recall", "summary")
NUM_WORDS_IN_A_SENTENCE = 25
READ = r"""() => {
    const apart = 'pre, nav, svg, annotation, script, style, template, noscript, ' +
        '.pb-foot, .pb-numbers, .pb-states, .pb-paper, .pb-answer, .pb-hint, .pb-meta, ' +
        '.pb-waits, .pb-contents, .pb-aside.pb-live, button';
    const num = text => text.split(/\s+/).filter(one => /[\p{L}\p{N}]/u.test(one)).length;
    const article = document.querySelector('article');
    const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    const found = {seen: 0, folded: 0, told: 0};
    while (texts.nextNode()) {
        const parent = texts.currentNode.parentElement;
        if (parent.closest(apart)) continue;
        const words = num(texts.currentNode.textContent);
        found[parent.checkVisibility() ? 'seen' : 'folded'] += words;
        if (!parent.closest('.pb-question, .pb-backing, .pb-natures')) found.told += words;
    }
    found.gates = [...article.querySelectorAll('.pb-waits')]
        .filter(one => one.checkVisibility()).length;
    // What opens the page, its sections and its figures.
    const opens = [...article.querySelectorAll('.pb-lede > p:first-child, .pb-caption')];
    article.querySelectorAll('h2').forEach(one => {
        let next = one.nextElementSibling;
        while (next?.matches('div:not([class])')) next = next.firstElementChild;
        if (next?.matches('p:not([class])')) opens.push(next);
    });
    found.opens = opens.map(one => {
        const end = /(?<!\b(?:e\.g|i\.e|vs))[.:;?!](?=\s|$)/.exec(one.textContent);
        const said = document.createRange();
        said.selectNodeContents(one);
        let left = end ? end.index : Infinity;
        const walk = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
            if (left <= walk.currentNode.length) { said.setEnd(walk.currentNode, left); break; }
            left -= walk.currentNode.length;
        }
        const sentence = said.cloneContents();
        return [sentence.textContent.trim(), num(sentence.textContent),
            Boolean(sentence.querySelector('[data-v]'))];
    });
    return found;
}"""


@pytest.fixture(scope="module")
def lessons(built_site, browser):
    """What a reader sees of each page of a topic, by its path below `topics/`."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    found = {}
    for path in sorted(built_site.glob("topics/*/*.html")):
        page.goto(path.as_uri())
        found[f"{path.parent.name}/{path.stem}"] = page.evaluate(READ)
    page.close()
    return found


def _mode(path):
    return path.partition("/")[2].partition("-")[0]


def _counts(path, topic):
    """Whether it is a lesson of a topic; Recall and the summary repeat others."""
    return path.startswith(f"{topic}/") and _mode(path) not in APART


def test_a_lesson_keeps_to_its_limit(lessons):
    long = {
        path: {kind: num for kind in ("seen", "folded") if (num := one[kind]) > LIMITS[_mode(path)]}
        for path, one in lessons.items()
        if _mode(path) in LIMITS
    }
    assert {path: one for path, one in long.items() if one} == {}


def test_a_topic_says_a_quarter_less_than_it_did(lessons):
    for topic, before in BEFORE.items():
        own = [one for path, one in lessons.items() if _counts(path, topic)]
        assert sum(one["told"] for one in own) <= 0.75 * before, topic


def test_a_page_waits_for_one_answer_at_most(lessons):
    assert {path: one["gates"] for path, one in lessons.items() if one["gates"] > 1} == {}


def test_pages_sections_and_figures_open_with_a_sentence_to_keep(lessons):
    wrong = {
        path: said
        for path, one in lessons.items()
        if (
            said := [
                (sentence, num)
                for sentence, num, has_value in one["opens"]
                if has_value or num > NUM_WORDS_IN_A_SENTENCE
            ]
        )
    }
    assert wrong == {}
