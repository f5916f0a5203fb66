"""Where reading begins: home, the path, and the page of each topic."""

from proofbook.runners.system.kinds import Fence, Kind, PageKind

KIND = Kind(
    sheets=".pages:sheets",
    shared={"content/site.yml": ["index.md", "topics/index.md", "evidence.md", "retracted.md"]},
    pages={
        "home": PageKind(".pages:home", 0.3),
        "topics": PageKind(".path:path", 0.3, names_machines=False),
        "topic": PageKind(".pages:topic", 0.2),
    },
    slots={"former": ".pages:former"},
    fences={"topics": Fence(".words:TopicList", ".pages:listed")},
    scripts={"proofbook": "Begin TopicMap WayList", "home": "Begin"},
    styles={"home": "Begin", "indexes": "TopicMap WayList"},
    spoken={"home": "home"},
)
