"""A topic → a class of it to print: documents of HTML that hold all they need.

In: a checked book and a topic. Out: the plan, slides, questions and answers apart, the topic's
first lab, and what students often get wrong with the evidence against it.
"""

from generator.content.book import Topic
from generator.pages.compose import begin
from generator.pages.environment import TEMPLATES, environment
from generator.pages.page import Gathered
from generator.pages.sheets import Sheet
from generator.pages.views.lecture import IN_CLASS, MINUTES, lecture
from generator.printing.markdown import unlinked
from generator.values.evaluation import Evidence
from generator.website.publish import ASSETS, style

PARTS = ("plan", "slides", "questions", "answers", "lab", "mistakes")


def documents(evidence: Evidence, topic: Topic) -> dict[str, bytes]:
    """`{file name: bytes}`: a class on a topic as self-contained HTML, no part without content."""
    sheets = ASSETS / "asking.css", TEMPLATES / "exported/class.css"
    css = style().decode() + "".join(path.read_text(encoding="utf-8") for path in sheets)
    gathered, lab = Gathered(evidence, {}, {}), next(iter(topic.labs), None)
    plan = lecture(begin(Sheet("class.md", "class", "", "", topic=topic, lab=lab), gathered))
    needs = {"lab": plan.task, "mistakes": plan.beliefs, "questions": plan.paper}
    page, files = environment().get_template("exported/class.html.j2"), {}
    for part in (part for part in PARTS if needs.get(part, True)):
        html = page.render(part=part, lecture=plan, css=css, minutes=MINUTES, in_class=IN_CLASS)
        files[f"{part}.html"] = unlinked(html).encode()
    return files
