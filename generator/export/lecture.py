"""A topic → a class of it to print: documents of HTML that hold all they need.

In: a checked book and a topic. Out: the plan, slides, questions and answers apart, the topic's
first lab, and what students often get wrong with the evidence against it.
"""

from generator.content.book import Topic
from generator.pages.page import TEMPLATES, Gathered, Sheet, environment, start_page
from generator.pages.views import lecture
from generator.printing.markdown import unlinked
from generator.values.evaluation import Evidence
from generator.website.publish import ASSETS, style

PARTS = ("plan", "slides", "questions", "answers", "lab", "mistakes")


def documents(evidence: Evidence, topic: Topic) -> dict[str, bytes]:
    """`{file name: bytes}`: a class on a topic as self-contained HTML, no part without content."""
    sheets = ASSETS / "asking.css", TEMPLATES / "exported/class.css"
    css = style().decode() + "".join(path.read_text(encoding="utf-8") for path in sheets)
    files = {}
    for part in PARTS:
        lab = next(iter(topic.labs), None)
        sheet = Sheet("class.md", "exported/class.html.j2", "", "", topic=topic, lab=lab)
        folio, context = start_page(sheet, Gathered(evidence, {}, {}))
        plan = lecture.lecture(topic, folio)
        needs = {"lab": lab, "mistakes": plan.beliefs, "questions": plan.paper}
        if not needs.get(part, True):
            continue
        page = environment().get_template(sheet.template)
        html = page.render(context, part=part, lecture=plan, css=css)
        files[f"{part}.html"] = unlinked(html).encode()
    return files
