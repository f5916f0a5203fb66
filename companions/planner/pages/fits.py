"""A calculator: does a model train on some devices, and in which memory?

In: `calculator` of planner/plan.yml, presets, and the closed forms of the planner. Out: a form on
the page of plans, and as a sentence on the home page; the closed forms as a script that answers
what it asks; and a table of presets for readers without one.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup

from proofbook.companions.planner.answers import closed_form
from proofbook.companions.planner.answers.answer import days_of, needs, verdict
from proofbook.companions.planner.answers.architecture import (
    Architecture,
    model_presets,
)
from proofbook.companions.planner.answers.devices import gpus
from proofbook.companions.planner.answers.question import (
    PlanError,
    PlannedModel,
    Question,
    Strategy,
    TrainingSettings,
    strategy_of,
)
from proofbook.companions.planner.pages.javascript import script_of
from proofbook.companions.planner.words import MemoryChoices, PlanFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Made
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import label
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values import units
from proofbook.generator.values.value import computed
from proofbook.generator.website.publish import asset

SCRIPT = "assets/memory-law.js"
PYTHON = Path(__file__).parents[1] / "assets" / "python.js"
COUNTS = [2**power for power in range(11)]
# Fields of a model that readers change.
_SIZES = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "ffn_size", "vocabulary")
_ROOTS = (
    closed_form.answer, needs, verdict, days_of, Question, Question.check, Strategy, Architecture,
)  # fmt: skip


def calculator(written: MemoryChoices, folio: Folio) -> Made:
    """The calculator, and what presets need."""
    heads = [f"#{example.label}" for example in written.examples]
    table = Table(["Model", *heads], [*_rows(written, folio)], is_found=False)
    return Made("MemoryCalculator", is_found=False, table=table, **_form(written, folio))


def on_home(draft: Draft) -> Iterator[Made]:
    """The calculator as a sentence, if it has one."""
    plan, folio = draft.folio.book.file(PlanFile), draft.folio
    if plan and plan.calculator and plan.calculator.sentence:
        # Some words, and the choice that follows them.
        parts = re.findall(r"([^{]+)(?:\{(\w+)\})?", folio.line(plan.calculator.sentence))
        form, words = _form(plan.calculator, folio), [[*map(Markup, part)] for part in parts]
        yield Made("MemorySentence", is_found=False, words=words, **form)


def _form(written: MemoryChoices, folio: Folio) -> dict[str, Any]:
    """What a form has, whose script is then among the assets of the page."""
    models, training = model_presets(), TrainingSettings(sequence=written.sequence)
    given = {
        "models": {name: preset.architecture.model_dump() for name, preset in models.items()},
        "strategies": dict(_strategies(written)),
        "training": training.model_dump(),
    }
    law = asset(PYTHON).decode() + script_of("proofbook.law", _ROOTS)
    law += f"proofbook.law.given = {json.dumps(given)};\n"
    folio.assets[SCRIPT] = law.encode()
    by_memory = dict(sorted(gpus().items(), key=lambda named: named[1].memory_mib))
    return {
        "written": written, "models": [*models.values()], "devices": by_memory, "counts": COUNTS,
        "sizes": _SIZES, "training": training, "script": folio.root + SCRIPT,
    }  # fmt: skip


def _strategies(written: MemoryChoices) -> Iterator[tuple[str, dict[str, object]]]:
    """Each strategy on each number of devices that it can have, named by both."""
    for name in written.strategies:
        for count in COUNTS:
            try:
                strategy = strategy_of(name if count > 1 else "single", count)
            except PlanError:
                continue
            yield f"{count} {name}", strategy.model_dump(exclude_defaults=True)


def _rows(written: MemoryChoices, folio: Folio) -> Iterator[Row]:
    """What each preset needs in each of the examples."""
    for name, preset in model_presets().items():
        model = PlannedModel(name=name, architecture=preset.architecture)
        length = min(written.sequence, preset.architecture.context_length)
        row: list[Markup] = [label(preset.title)]
        for example in written.examples:
            fields = {**example.training, "sequence": length, "global_batch": example.devices}
            training = TrainingSettings.model_validate(fields)
            strategy = strategy_of(example.strategy, example.devices)
            question = Question(model=model, training=training, strategy=strategy)
            formula = f"needs({name}, {example.strategy}, {json.dumps(fields)})"
            number = needs(closed_form.answer(question))
            row.append(folio.show(computed(number, units.BYTES, formula, ())))
        yield row
