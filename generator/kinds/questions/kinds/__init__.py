"""The kinds of questions: for each what authors write, what is right, its answers and its form.

A module of this folder with a model and its class is a kind, and stands in no list.
"""

import hashlib
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Union

from proofbook.generator.content.quiz import Item, QuizFence, QuizFile
from proofbook.generator.kinds.questions.kinds.base import QuestionKind
from proofbook.generator.values.evaluation import Evidence

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
for _model in (QuizFile, QuizFence):
    _model.model_rebuild(_types_namespace={"AnyItem": Union[tuple(QuestionKind.BY_MODEL)]})  # noqa: UP007


def kind_of(question: Item, evidence: Evidence) -> QuestionKind[Any]:
    """An item on this book's runs; worked out once."""
    kind = QuestionKind.BY_MODEL[type(question)]
    return evidence.cached("kind", question, lambda: kind(question, evidence))


def digest_of(question: Item, evidence: Evidence) -> str:
    """SHA-256, 12 hexadecimal digits, of an item's id, kind, `revision` and what is right.

    A browser keeps it with a reader's answers. It covers no wording, feedback or hint, and no
    measured number, so that neither rewriting a text nor a rerun voids an answer.
    """
    kind = question.kept_as or question.kind
    parts = [question.id, kind, str(question.revision), kind_of(question, evidence).digest_source]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
