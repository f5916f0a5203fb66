"""Questions that check themselves."""

from proofbook.runners.system.kinds import Fence, Kind

KIND = Kind(
    files={"topics/*/quiz*.yml": ".kinds:QuizFile"},  # with the models of all kinds
    fences={"quiz": Fence(".kinds:QuizFence", ".in_book:questions", parse=".in_book:parsed")},
    notes=".in_book:notes",
    mistakes={
        "proofbook.generator.content.quiz:QuizFile": ".in_book:of_quiz",
        "proofbook.generator.content.handwritten:HandWritten": ".in_book:of_page",
    },
    known={"item": ".in_book:known"},
    scripts={
        "proofbook": "Question",
        "schedule+kinds+question": "Question",
        "pieces": "pieces pairs variants",
        "numbers": "typed_field variants",
        "asked": "Question",
    },
    shared_scripts=["schedule+kinds+question"],
    styles={"asking": "predict order match faulty_line"},  # those of no plain kind
    spoken={"kinds": "asking", "pieces": "pieces", "numbers": "numbers"},
)
