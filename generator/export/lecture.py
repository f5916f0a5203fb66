"""A topic → a class of it to print: documents of HTML that hold all they need.

In: a checked book and a topic. Out: the plan, slides, questions and answers apart, the topic's
first lab, and what students often get wrong with the evidence against it.
"""

from generator.content.book import Topic
from generator.content.typesetting import unlinked
from generator.pages.compose import begin
from generator.pages.environment import TEMPLATES, environment
from generator.pages.page import Gathered
from generator.pages.sheets import Sheet
from generator.pages.views import lecture
from generator.printing.markdown import plain
from generator.values.evaluation import Evidence
from generator.website.publish import ASSETS, style


def documents(evidence: Evidence, topic: Topic) -> dict[str, bytes]:
    """`{file name: bytes}`: a class on a topic as self-contained HTML, no part without content."""
    sheets = ASSETS / "asking.css", TEMPLATES / "exported/class.css"
    css = style().decode() + "".join(path.read_text(encoding="utf-8") for path in sheets)
    files = {}
    gathered, lab = Gathered(evidence, {}, {}), next(iter(topic.labs), None)
    sheet = Sheet("class.md", "class", "", "", topic=topic, lab=lab)
    for part, (called, compose) in lecture.PARTS.items():
        draft = begin(sheet, gathered)
        if content := list(compose(lecture.lecture(topic, draft.folio), draft)):
            title = f"{called}: {plain(draft.folio.line(topic.file.title))}"
            page = environment().get_template("exported/class.html.j2")
            html = page.render(part=part, title=title, content=content, css=css)
            files[f"{part}.html"] = unlinked(html).encode()
    return files
