"""Broken and hostile traces: one clear line that names file and field; their text is only text."""

import json

from generator.pages.press import Press

EVIL = '<script>alert(x)</script><img src=q onerror=alert(x)> & "quo\'te" *a* [b](javascript:c) `d`'
ASKING = "{{ nosuch }} {{ tiny_memory.whole }} {% if %} }} {#"


def test_what_a_trace_says_is_printed_and_never_evaluated(copy):
    for experiment, question in ("tiny_memory", ASKING), ("tiny_training", EVIL):
        document = json.loads(copy.trace(experiment).read_text())
        copy.trace(experiment).write_text(json.dumps(document | {"question": question}))
    assert copy.errors() == []
    pages = {name: page.decode() for name, page in Press().printed(copy.load()).items()}
    for name, page in pages.items():
        for harm in ("<script>alert", "<img src=q", 'href="javascript', "<em>a</em>"):
            assert harm not in page, name
    assert "{{ nosuch }} {{ tiny_memory.whole }} {% if %}" in pages["evidence/tiny_memory.md"]
