"""Questions as files of other programs, and classes to print."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(
    book_commands={"export": ".commands:EXPORT", "class": ".commands:CLASS"},
    book_usage="""\
    proofbook export            questions for Moodle, Canvas and Anki; class: one of 90 minutes
""",
)
