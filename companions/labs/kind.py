"""Labs: their command, their files, the pages that set them, and the experiment that grades."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    commands={"lab": ".command"},
    usage="""\
    python -m runners lab [NAME]               write a technique, and have it graded
""",
    stopped="your file is as you saved it",
    files={
        "topics/*/labs/*/lab.yml": ".words:LabFile",
        "topics/*/labs/*/wrong.yml": ".words:WrongFile",
    },
    folders=["topics/*/labs"],
    downloads=False,  # the command writes them
    of_no_machine=["labs"],
    reads=".words:labs",
    sheets=".pages:sheets",
    pages={"lab": PageKind(".pages:lab", 0.5, names_machines=False, label="Lab", is_listed=True)},
    mistakes={
        ".words:LabFile": ".words:mistakes",
        ".words:WrongFile": ".words:wrong_mistakes",
    },
    slots={"steps.lab": ".pages:steps", "class": ".pages:for_a_class"},
)
