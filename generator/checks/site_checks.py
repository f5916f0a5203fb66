"""mkdocs.yml of a book of one's own: whether MkDocs will make the book of it.

Without our plugin MkDocs would publish the YAML as it stands, and no command of ours would know.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import yaml
from pathspec import GitIgnoreSpec

LEFT_OUT = ("not_in_nav", "exclude_docs", "draft_docs")  # keys with patterns, as of git


def mistakes(root: Path) -> Iterator[str]:
    """Yield a line if MkDocs would not build the book: no mkdocs.yml, unreadable, no proofbook."""
    path = root / "mkdocs.yml"
    if not path.is_file():
        yield f"{path.name}: no such file, so MkDocs cannot build the book"
        return
    try:
        top = yaml.compose(path.read_text(encoding="utf-8"))  # which asks nothing of its tags
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        yield f"{path.name}: {' '.join(str(error).split())}"
        return
    keys = dict(_keys(top))
    if "INHERIT" not in keys and "proofbook" not in dict(_keys(keys.get("plugins"))):
        yield (
            f"{path.name}: proofbook is missing under plugins:, so MkDocs would publish the YAML "
            "as it stands; add `- proofbook: {pages: site/pages}`"
        )


def unlisted(root: Path, pages: Iterable[str]) -> Iterator[str]:
    """Yield a line for each given page that mkdocs.yml neither lists in `nav:` nor leaves out."""
    try:
        keys = dict(_keys(yaml.compose((root / "mkdocs.yml").read_text(encoding="utf-8"))))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return  # as `mistakes` tells
    patterns = (str(keys[key].value).splitlines() for key in LEFT_OUT if key in keys)
    left_out = GitIgnoreSpec.from_lines(chain(*patterns))
    named = {*_scalars(keys["nav"])} - {""} if "nav" in keys else set()
    for page in pages if named else ():
        if page not in named and not left_out.match_file(page):
            message = "the nav: of mkdocs.yml does not name it; list it there, or under not_in_nav:"
            yield f"content/pages/{page}: {message}"


def _scalars(tree: yaml.Node | tuple[yaml.Node, ...]) -> Iterator[str]:
    if isinstance(tree, yaml.ScalarNode):
        yield str(tree.value)
        return
    for node in tree.value if isinstance(tree, yaml.Node) else tree:  # a mapping has pairs
        yield from _scalars(node)


def _keys(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """The keys of a mapping, or of a list of names and mappings, with their values."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), held) for key, held in node.value)
    for element in node.value if isinstance(node, yaml.SequenceNode) else ():
        is_name = isinstance(element, yaml.ScalarNode)
        yield from [(str(element.value), element)] if is_name else _keys(element)
