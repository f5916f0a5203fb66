"""The types of what an author writes: which fields are prose, which are expressions.

`Line` and `Prose` are Markdown in which `{{ … }}` is an expression over the traces and a bare
numeral is an error; `Line` renders inline, `Prose` as paragraphs. `Expression` is one expression
without the braces; in `PerRun` the word `run` stands for each of several runs, and in `Formula` the
inputs of a calculator stand for themselves. The marks are read by `checks/`.
"""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, ClassVar, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, StringConstraints, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

_EVERYWHERE = {  # what a key is where its part says nothing else of it
    "about": "a sentence on the page, also for search engines and previews.",
    "afterword": "below it: what to see there, or where to go on.",
    "belief": "in the words of someone who holds it.",
    "caption": "what to see in it.",
    "checks": "ids of questions, near the end of the page.",
    "claims": "ids of claims that back it; their verdicts follow.",
    "commit": "the id of a question that is asked first; what answers it stays closed until then.",
    "figures": "drawn from runs; a section names one by its id, and it appears there.",
    "hints": "given one at a time.",
    "introduction": "above it: what it shows.",
    "label": "a word or two, as readers see it.",
    "more": "further sections, with evidence of their own.",
    "note": "what to see in the row.",
    "output": "the run whose printed output is shown.",
    "output_says": "how to read what the program printed.",
    "situation": "what is given, without the answer.",
    "slips": "wrong numbers that typical mistakes give; an answer like one of them is explained.",
    "sources": "ids of references.yml, linked below it.",
    "takeaway": "the sentences to remember.",
    "title": "its heading.",
    "tolerance": "how far off an answer may be and be right.",
    "walkthrough": "the lines that matter, in their order.",
    "why": "the reason, shown with the answer.",
    "within": "how far off a run it may be; the build refuses more.",
}


class FieldMark(NamedTuple):
    """What a string is: a text such as `line`, or an id of something such as `claim`."""

    kind: str | None  # of a text, or of what it names; none of other strings
    says: str = ""  # what editors are told of it

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(core) | ({"description": self.says} if self.says else {})


MAX_LINE, MAX_PROSE = 1_000, 10_000  # characters; the book's longest have 440 and 1,930
Line = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE), FieldMark("line")]
Prose = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROSE), FieldMark("prose")]
_SHORT = StringConstraints(min_length=1, max_length=240)
Expression = Annotated[str, _SHORT, FieldMark("expression", "an expression, without braces")]
_PER_RUN = "an expression in which `run` stands for each run in turn"
PerRun = Annotated[str, _SHORT, FieldMark("per_run", _PER_RUN)]
Formula = Annotated[str, _SHORT, FieldMark("formula", "a formula over the names of the inputs")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
Id = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"),
    FieldMark(None, "by which others name it: lower-case letters and digits, with hyphens"),
]
ClaimId = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_]*(-[a-z0-9]+)*(@[a-z_][a-z0-9_]*(\.[a-z0-9_]+)?)?$"),
    FieldMark("claim", "a claim's id; with `for`, also its run: `all-reduce-payload@ddp.ddp`"),
]
ValueName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_]\w*(\.\w+)*$")]
RunPath = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z_][a-z0-9_]*(\.[a-z0-9_]+)?$"),
    FieldMark(
        "run", "experiment.run, as in `large_model.wide_single`, or a name that `for:` binds"
    ),
]
LessonPath = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9-]+/[a-z]+$"),
    FieldMark("lesson", "a lesson as topic/mode: `ddp/deep`"),
]
PagePath = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9-]+(/[a-z]+)?$"),
    FieldMark("page_path", "a lesson as topic/mode, or a page of content/pages: `first-run`"),
]
FigureId = Annotated[Id, FieldMark("figure", "the id of a figure of this file")]
LessonFigure = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]+#[a-z0-9-]+$"),
    FieldMark("lesson figure", "a figure of a lesson of the topic as mode#id: `deep#ring`"),
]
ItemId = Annotated[Id, FieldMark("item", "the id of a question of the topic")]
_BELIEF = "the belief behind it: an id of misconceptions.yml"
MisconceptionId = Annotated[Id, FieldMark("misconception", _BELIEF)]
SourceId = Annotated[Id, FieldMark("reference", "an id of references.yml")]
StatementId = Annotated[Id, FieldMark("statement")]
_SYMPTOM = StringConstraints(pattern=r"^[a-z][a-z0-9-]*(#ask-[1-9])?$")  # or a question of it
SymptomId = Annotated[str, _SYMPTOM, FieldMark("symptom")]
TechniqueId = Annotated[Id, FieldMark("technique")]
TopicId = Annotated[Id, FieldMark("topic")]
GridName = Annotated[Name, FieldMark("grid", "the committed plans of a model: `plan_llama_8b`")]


LACKS = "lacks"  # the type of the error of a part without any of several keys
NOTHING: tuple[object, ...] = (None, "", [])  # what says as little as no key


class Written(BaseModel):
    """Anything an author writes: unknown keys are errors, and so is the number nan."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    ONE_OF: ClassVar[tuple[tuple[str, ...], ...]] = ()  # of each of these, a part has one key,
    OR_MORE: ClassVar[bool] = False  # or several

    @model_validator(mode="after")
    def _has_one_of_each(self) -> Self:
        for keys in self.ONE_OF:
            num = sum(getattr(self, key) not in NOTHING for key in keys)
            if not num:
                raise PydanticCustomError(LACKS, "a key is missing")
            if num > 1 and not self.OR_MORE:
                raise ValueError(f"give one of {', '.join(keys)}, and no other")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema that editors read: each key with what stands below it, or is said of it."""
        schema = handler.resolve_ref_schema(handler(core))
        for name, field in cls.model_fields.items():
            says = field.description or _EVERYWHERE.get(name)
            if says:
                schema["properties"][field.alias or name]["description"] = " ".join(says.split())
        return schema


def as_list(written: object) -> list[object]:
    """Wrap a value that is no list in a list."""
    return written if isinstance(written, list) else [written]


def runs_as_cases(written: object) -> object:
    """Cases of `for:`, in which a run alone becomes `{run: name}`."""
    return [{"run": case} if isinstance(case, str) else case for case in as_list(written)]


_Bound = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE), FieldMark("case")]
Bound = dict[Name, int | _Bound]


def _mark(annotation: object, metadata: Iterable[object]) -> str | None:
    """The mark of a text field, looked for in its annotation too."""
    for mark in metadata:
        if isinstance(mark, FieldMark) and mark.kind:
            return mark.kind
    if get_origin(annotation) is Annotated:
        return _mark(None, get_args(annotation)[1:])
    kinds = (_mark(argument, ()) for argument in get_args(annotation))  # of a dict: keys, values
    return next(filter(None, kinds), None)


@cache
def marks(model: type[BaseModel]) -> tuple[tuple[str, str, str | None], ...]:
    """The fields of a model, each with the key that authors write and the mark of its text."""
    return tuple(
        (name, declared.alias or name, _mark(declared.annotation, declared.metadata))
        for name, declared in model.model_fields.items()
    )


class LessonSection(Written):
    """A section of a lesson, by its heading; a number before the heading is left out."""

    page: LessonPath
    section: str
