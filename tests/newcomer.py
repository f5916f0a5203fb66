"""A newcomer's machine: what a plain `make site` measures, by somebody who may shape no network.

In: the committed traces of the reference machine. Out: a copy of the content with a second machine
that measured the same, but for the runs that it left out or had no right to.
"""

import json
import shutil
from pathlib import Path

from proofbook.runners.core.declared.experiment import Experiment, find, names
from proofbook.runners.core.trace.records import NEEDS_FULL
from tests.conftest import ROOT, not_of_the_reference
from tests.recorded import as_recorded, write

MACHINE = "newcomer"
REFERENCE = "reference-cpu-2c"
NO_RIGHTS = "needs a network of its own, which this user may not make"


def content_of(folder: Path) -> Path:
    """The book's content with the newcomer's traces beside the reference machine's.

    Args:
        folder: where it is put.
    """
    content = folder / "content"
    shutil.copytree(ROOT / "content", content, ignore=not_of_the_reference)
    (folder / "runners").symlink_to(ROOT / "runners")  # lessons list parts of its programs
    own = content / "traces" / MACHINE
    own.mkdir()
    reference = content / "traces" / REFERENCE
    measured = [one for one in names() if (reference / f"{one}.json").exists()]
    for name in ("machine", *(one for one in measured if not find(one).is_full)):
        text = (reference / f"{name}.json").read_text()
        document = json.loads(text.replace(REFERENCE, MACHINE))
        if name != "machine":
            _leave_out(document, find(name))
        write(own / f"{name}.json", document)
    return content


def _leave_out(document: dict, experiment: Experiment) -> None:
    for name, declaration in experiment.runs.items():
        if declaration.full or declaration.own_network:
            run = document["runs"][name]
            reason = NEEDS_FULL.format(experiment.name) if declaration.full else NO_RIGHTS
            run.update(status="skipped", reason=reason, model=None, validation=None, allocator={})
            as_recorded(run)
