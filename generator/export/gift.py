"""Questions → GIFT, the text that Moodle's bank of questions imports, with a category a topic.

In: `Question`s. Out: the text. A question with several right options gives a share of its points
for each of them, and none where a wrong one is chosen.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from generator.content.typesetting import plain
from generator.export.questions import Question, Reply

LACKS = {
    "order": "no question here puts pieces in order",
    "predict": "predictions are not graded",
}
_SPECIAL = re.compile(r"([\\~=#{}:])")


def written(questions: Sequence[Question]) -> bytes:
    """The text of a file, in UTF-8."""
    blocks = []
    for title, own in groupby(questions, lambda one: one.topic_title):
        blocks.append(f"$CATEGORY: $course$/{title.replace('/', '//')}")
        blocks += map(_block, own)
    return ("\n\n".join(blocks) + "\n").encode()


def _block(question: Question) -> str:
    explains = f"####{_text(question.solution)}" if question.solution else ""
    inside = "\n".join(filter(None, [*_answers(question), explains]))
    start = f"// [id:{question.id}]\n::{question.id}::[html]{_text(question.stem)}"
    return f"{start} {{{inside}\n}}"


def _answers(question: Question) -> Iterator[str]:
    """The lines between the braces."""
    if question.kind == "number":
        yield "#"
        for one in question.replies:
            yield f"={'' if one.is_right else '%0%'}{one.number}:{one.within}{_feedback(one)}"
    elif question.kind == "shape":
        for text in question.spellings:
            yield f"={_text(text)}{_feedback(question.replies[0])}"
    elif question.kind == "match":
        for one in question.shown:
            yield f"={_text(one.text)} -> {_text(plain(one.beside))}"
    else:
        signs = _signs(question)
        for one in question.shown:
            yield f"{signs[one.is_right]}{_text(one.text)}{_feedback(one)}"


def _signs(question: Question) -> dict[bool, str]:
    """What begins a right option, and a wrong one."""
    if question.kind == "choice":
        return {True: "=", False: "~"}
    share = f"{100 / sum(one.is_right for one in question.replies):.5f}"
    return {True: f"~%{share.rstrip('0').rstrip('.')}%", False: "~%-100%"}


def _feedback(reply: Reply) -> str:
    return f"#{_text(reply.why)}" if reply.why else ""


def _text(html: str) -> str:
    """A text on one line, in which nothing is GIFT's own."""
    return _SPECIAL.sub(r"\\\1", str(html)).replace("\n", "\\n")
