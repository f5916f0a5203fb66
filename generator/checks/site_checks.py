"""mkdocs.yml of a book of one's own: whether MkDocs will make the book of it.

Without our plugin MkDocs would publish the YAML as it stands, and no command of ours would know.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml


def mistakes(root: Path) -> Iterator[str]:
    """What keeps MkDocs from making a book in this folder."""
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


def _keys(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """The keys of a mapping, or of a list of names and mappings, each with what it holds."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), held) for key, held in node.value)
    for one in node.value if isinstance(node, yaml.SequenceNode) else ():
        yield from [(str(one.value), one)] if isinstance(one, yaml.ScalarNode) else _keys(one)
