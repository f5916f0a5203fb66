"""Questions whose answers are picked: options, one right or several, and the line at fault."""

import difflib
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Literal, Self

from markupsafe import Markup
from pydantic import Field, ValidationInfo, model_validator

from proofbook.generator.content.claim import SEVERAL, Verdict
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.exhibit import Executed
from proofbook.generator.content.listed_code import listed, why_misplaced
from proofbook.generator.content.quiz import Drawable, Item
from proofbook.generator.content.words import ClaimId, Expression, Line, MisconceptionId, Written
from proofbook.generator.content.yaml_source import Path
from proofbook.generator.kinds.questions.answers import (
    ExplainedAnswer,
    claim_backing,
    refutation_of,
)
from proofbook.generator.kinds.questions.kinds.base import OPEN, ItemError, Key, QuestionKind
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.verdicts import UNDECIDED, Judged

_BELIEVED = "name the misconception of each wrong one"
_ONE_OF_THEM = "correct `right_if:` or `right:` of one, or ask for all that apply, `kind: several`"
_DECIDE = ("right_if", "refuted_by", "decides", "right")


class RightIf(Written):
    """The claim, and its verdict, that make an option right."""

    claim: ClaimId
    verdict: Verdict = "holds"


class Option(Written):
    """One answer, and why it is right or wrong.

    One that can be wrong names its misconception. What `right_if` or `refuted_by` names decides
    whether it is right; where neither stands, or more claims are needed to tell, `decides` names
    them. Where none of the three stands, the claim decides that refutes the misconception.
    """

    ONE_OF, OR_MORE = (("text", "gives"), (*_DECIDE, "misconception", "gives")), True
    text: Line | None = None
    """what it says; where it stands not, the value of `gives`."""
    gives: Expression | None = None
    """of an item that draws its numbers: the value that this answer has."""
    why: Line
    right_if: RightIf | None = None
    right: bool | None = None
    """outside a book: what the item's `source` says of it."""
    misconception: MisconceptionId | None = None
    refuted_by: ClaimId | None = None
    """the claim that refutes a wrong answer; it holds, and is shown as the evidence."""
    decides: Annotated[list[ClaimId], SEVERAL] = []
    """claims that decide it, whatever their verdict; they are not shown."""

    @model_validator(mode="before")
    @classmethod
    def _decided(cls, written: object, known: ValidationInfo) -> object:
        """What refutes its misconception, by `context`, refutes an option that names no claim."""
        if isinstance(written, dict) and not {*_DECIDE} & {*written}:
            claim = (known.context or {}).get(str(written.get("misconception")))
            return {**written, "refuted_by": claim} if claim else written
        return written

    @property
    def wording(self) -> str:
        """Its text, or the value of `gives`."""
        return self.text or f"{{{{ {self.gives} }}}}"

    @model_validator(mode="after")
    def _right_or_believed(self, known: ValidationInfo) -> Self:
        """What refutes a misconception leaves the option that names it wrong."""
        refutes = self.refuted_by or (known.context or {}).get(str(self.misconception))
        right = self.right_if
        if self.misconception and right and (right.claim != refutes or right.verdict == "holds"):
            raise ValueError(
                f"where {refutes} holds, which refutes its misconception, an option is wrong: "
                "name it in right_if:, with verdict: does_not_hold"
            )
        return self


class SingleChoice(Drawable):
    """One answer is right."""

    kind: Literal["choice"] = "choice"
    options: Annotated[list[Option], Field(min_length=2)]

    @model_validator(mode="after")
    def _drawn_answers(self) -> Self:
        if any(bool(option.gives) != bool(self.draws) for option in self.options):
            raise ValueError("gives: stands in each option of an item with draws:, and in no other")
        return self

    def backed_by_law(self, law: str) -> "SingleChoice":
        """A copy of the item: options without a misconception are right if the law holds."""
        right = {"right_if": RightIf(claim=law)}
        options = [
            option if option.misconception else option.model_copy(update=right)
            for option in self.options
        ]
        return self.model_copy(update={"options": options})

    def answer_expressions(self) -> Iterator[tuple[Path, str]]:
        """Path and expression of each option, the right one first."""
        for place, option in sorted(
            enumerate(self.options), key=lambda option: not option[1].right_if
        ):
            yield ("options", place, "gives"), option.gives or ""


class Several(Item):
    """Any number of answers, at least one, are right; each stands or falls with its claim."""

    kind: Literal["several"]
    options: Annotated[list[Option], Field(min_length=3)]

    @model_validator(mode="after")
    def _stated(self) -> Self:
        if any(option.gives for option in self.options):
            raise ValueError("gives: stands in a choice with draws:")
        return self


class OneOption(QuestionKind[SingleChoice | Several], of=SingleChoice):
    """The one option whose claim has the verdict that it names is right."""

    places = "options"
    backed_by = "refuted_by"
    has_one_key = True
    texts = ("wording",)

    @cached_property
    def key(self) -> Key:
        """A `Key`: the option whose claim has the verdict it names; refused if none or several."""
        right = self._right
        if len(right) == 1:
            return Key(right=right)
        texts = " and ".join(repr(self.item.options[i].wording) for i in right)
        no_key = " has no key: no `right_if:` names the verdict of its claim, nor is any `right:`"
        do = _BELIEVED if self.item.options[0].gives else _ONE_OF_THEM
        return self._unclear(f" has {len(right)} right options: {texts}; {do}" if right else no_key)

    @cached_property
    def _outcomes(self) -> dict[str, Judged]:
        named = {option.right_if.claim for option in self.item.options if option.right_if}
        return {name: self.evidence.judged(name) for name in sorted(named)}

    @property
    def _right(self) -> tuple[int, ...]:
        return tuple(
            place
            for place, option in enumerate(self.item.options)
            if option.right
            or (
                option.right_if
                and self._outcomes[option.right_if.claim].verdict == option.right_if.verdict
            )
        )

    def _unclear(self, problem: str) -> Key:
        """Refuse a key that is not one option; open on the runs of another machine."""
        judged = ", ".join(f"{name}: {claim.verdict}" for name, claim in self._outcomes.items())
        message = f"item {self.item.id!r}{problem} ({judged or 'no right_if'})"
        return self.refused(("id",), message)

    def _explained(self, place: int, folio: Folio) -> ExplainedAnswer:
        option, verdict = self.item.options[place], self.verdict(place)
        text, why = folio.line(option.wording), folio.line(option.why)
        behind = option.right_if.claim if option.right_if else None
        named = behind if verdict == "right" else option.refuted_by or behind
        belief = option.misconception
        backing = (claim_backing(named, folio),) if named else refutation_of(belief, folio)
        return ExplainedAnswer(text, why, verdict, folio.ui["item"][verdict], place, backing)


class SeveralOptions(OneOption, of=Several):
    """Each option stands or falls with its claim; at least one is right, and not all."""

    instruction = "choose all that apply"

    @cached_property
    def key(self) -> Key:
        """A `Key`: options with the verdicts named; open if undecided, refused if all or none."""
        if any(outcome.verdict in UNDECIDED for outcome in self._outcomes.values()):
            return OPEN  # an option that no run decides is neither right nor wrong
        right = self._right
        if 0 < len(right) < self.num_places:
            return Key(right=right)
        return self._unclear(f": {'every' if right else 'no'} option is right")


class CodeLine(Written):
    """A line that a reader may pick, written as it stands in the code, without its indent."""

    code: str
    why: Line
    misconception: MisconceptionId | None = None


class FaultyLine(Item):
    """Find the line at fault: the one of `lines` that the corrected program no longer has there."""

    kind: Literal["faulty_line"]
    wrong: Executed
    right: Executed
    lines: Annotated[list[CodeLine], Field(min_length=3, max_length=6)]


class Lines(QuestionKind[FaultyLine], of=FaultyLine):
    """The lines of a program, one of which the corrected program, which a run executed, lacks."""

    places = "lines"
    texts = ()  # a line of code is no text of the author's
    instruction = "find the line at fault"

    @cached_property
    def key(self) -> Key:
        """A `Key`: the only line that a diff with the corrected program removes; else ItemError."""
        try:
            wrong, right = (
                listed(self.evidence.book.root, program.path, program.object)
                for program in (self.item.wrong, self.item.right)
            )
        except ValueError as error:
            raise ContentError("", 0, 0, str(error)) from None
        for place, line in enumerate(self.item.lines):
            problem = why_misplaced(wrong, line.code)
            if problem:
                raise ItemError(("lines", place, "code"), problem)
        before, after = ([line.strip() for line in text.splitlines()] for text in (wrong, right))
        gone = {line[2:] for line in difflib.ndiff(before, after) if line.startswith("- ")}
        faulty = [i for i, line in enumerate(self.item.lines) if line.code.strip() in gone]
        if len(faulty) != 1:
            differ = f"{len(faulty)} of its lines differ in the corrected program, not one"
            raise ItemError(("lines",), f"item {self.item.id!r}: {differ}")
        return Key(right=tuple(faulty))

    def _explained(self, place: int, folio: Folio) -> ExplainedAnswer:
        line, verdict = self.item.lines[place], self.verdict(place)
        backing = () if verdict == "right" else refutation_of(line.misconception, folio)
        text = Markup("<code>{}</code>").format(line.code.strip())
        word = "The line at fault." if verdict == "right" else "Not at fault."
        return ExplainedAnswer(text, folio.line(line.why), verdict, word, place, backing)

    def page_order(self) -> tuple[int, ...]:
        """As written, which is the order of the program."""
        return tuple(range(self.num_places))
