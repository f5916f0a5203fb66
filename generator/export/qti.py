"""Questions → packages of QTI: 1.2 has a quiz for each topic, 2.1 a document for each question.

In: `Question`s. Out: a ZIP file, which is the same whenever it is made.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from itertools import groupby

from generator.export import gift
from generator.export.questions import Question
from generator.pages.page import environment

LACKS_1_2 = gift.LACKS
LACKS_2_1 = {"predict": gift.LACKS["predict"]}
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of the calendar of ZIP files


def written_1_2(questions: Sequence[Question]) -> bytes:
    """A package with a quiz for each topic, as Canvas imports it."""
    return _package("imsqti_xmlv1p2", {
        f"{topic}.xml": _filled("qti-1.2", topic=topic, questions=list(own))
        for topic, own in groupby(questions, lambda one: one.topic)
    })  # fmt: skip


def written_2_1(questions: Sequence[Question]) -> bytes:
    """A package with a document for each question."""
    items = {f"{one.id}.xml": _filled("qti-2.1", one=one) for one in questions}
    return _package("imsqti_item_xmlv2p1", items)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A ZIP file that does not tell when it was made."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        for name, content in files.items():
            package.writestr(zipfile.ZipInfo(name, _FIRST_DAY), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _package(kind: str, files: Mapping[str, bytes]) -> bytes:
    manifest = _filled("manifest", names=list(files), type=kind)
    return zipped({"imsmanifest.xml": manifest, **files})


def _filled(template: str, **values: object) -> bytes:
    return environment().get_template(f"exported/{template}.xml.j2").render(values).encode()
