"""`verify`: its command, its reports and the pages that show them."""

from proofbook.runners.system.kinds import Fence, Kind, PageKind

KIND = Kind(
    commands={"verify": ".command"},
    usage="""\
    python -m runners verify --ranks 4 train.py …
                                               is your script's update that of one process?
""",
    stopped="nothing was compared",
    folders=["verified"],
    tries={".verify.json": "verify"},
    reads=".reports:reports",
    sheets=".pages:sheets",
    pages={"watched": PageKind(".pages:watched", 1.0, names_machines=False)},
    fences={
        "verified": Fence(
            ".reports:Verified",
            ".pages:reported",
            follows_lessons=True,
            begins=".pages:own_runs",
            ends=".pages:causes",
        )
    },
    mistakes={"proofbook.generator.content.handwritten:HandWritten": ".reports:mistakes"},
    problems=".reports:problems",
)
