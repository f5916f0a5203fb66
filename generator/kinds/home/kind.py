"""Where reading begins: home, the path, and the page of each topic."""

from proofbook.runners.system.kinds import Kind, PageKind

KIND = Kind(
    sheets=".pages:sheets",
    shared={"content/site.yml": ["index.md", "topics/index.md", "evidence.md", "retracted.md"]},
    pages={
        "home": PageKind(".pages:home", 0.3),
        "topics": PageKind(".pages:topics", 0.3),
        "topic": PageKind(".pages:topic", 0.2),
    },
    scripts={"proofbook": "Begin TopicCards WayList", "home": "Begin"},
    styles={"home": "Begin", "indexes": "TopicCards WayList"},
    spoken={"home": "home"},
)
