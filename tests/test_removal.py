"""Each kind of pages and each companion taken away: what is left imports, and prints a book.

Its folder is all that goes, with those of the kinds that build on it. Nothing else is edited.
`tests/soak/test_removal.py` takes the folders away for good.
"""

import json
import os
import shutil
import sys

from tests.conftest import ROOT
from tests.processes import python, ran
from tests.test_architecture import COMPANIONS_TAKE, KINDS_TAKE, PACKAGES

KINDS = sorted(path.parent.name for path in ROOT.glob("generator/kinds/*/kind.py"))
COMPANIONS = sorted(path.parent.name for path in ROOT.glob("companions/*/kind.py"))
IMPORTS = """
import proofbook.generator.website.plugin
from proofbook.generator import __main__ as generator
from proofbook.generator.content.reading import file_models
from proofbook.generator.pages.compose import printed
from proofbook.generator.pages.environment import macros
from proofbook.generator.website.publish import assets
from proofbook.runners import __main__ as runners
from proofbook.runners.system.kinds import kinds
generator._parser(), file_models(), macros(), assets(), runners.usage()
left = {kind.package.rpartition(".")[2] for kind in kinds()}
print(*sorted(left), *runners.commands(), flush=True)
"""
# A process for each set of folders: it finds neither their declarations nor their modules.
WITHOUT = """
import importlib.abc, json, os, sys
import jinja2, markdown_it, material.plugins.search.plugin, mkdocs.plugins, pydantic, yaml
from proofbook.runners.system import kinds as found

class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        parts = name.split(".")
        at = 3 if parts[1:3] == ["generator", "kinds"] else 2 if parts[1:2] == ["companions"] else 9
        if len(parts) > at and parts[at] in gone:
            raise ModuleNotFoundError(f"{name} was taken away")

for number, gone in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        sys.meta_path.insert(0, Gone())
        patterns = [*found.HOME.glob("generator/kinds/*"), *found.HOME.glob("companions/*")]
        kept = [str(one.relative_to(found.HOME)) for one in patterns if one.name not in gone]
        found.FOLDERS = (*sorted(kept, key=lambda one: one.startswith("companions")), "runners/*")
        print(number, end=" ")
        exec(sys.argv[2])
        os._exit(0)
    _, ended = os.wait()
    if ended:
        raise SystemExit(f"without {gone}")
"""


def gone_with(name):
    """The kinds and companions that build on a kind, in any number of steps, and the kind."""
    builds_on = {**KINDS_TAKE, **COMPANIONS_TAKE}
    gone = {name}
    while more := {one for one, taken in builds_on.items() if gone & {*taken.split()}} - gone:
        gone |= more
    return gone


def test_the_plugin_and_all_commands_import_without_any_kind_or_companion():
    sets = [gone_with(name) for name in (*KINDS, *COMPANIONS)]
    done = python("-c", WITHOUT, json.dumps([sorted(gone) for gone in sets]), IMPORTS)
    assert done.returncode == 0, done.stderr
    lines = [{*line.split()[1:]} for line in done.stdout.splitlines()]
    for gone, left in zip(sets, lines, strict=True):
        assert left & gone == set()
        assert {*KINDS, *COMPANIONS} - gone <= left
        assert ("plan" in left) is ("planner" not in gone)


def test_a_tree_whose_links_became_files_runs_with_the_same_digests(tmp_path):
    """As an archive leaves it where links are not unpacked."""
    for package in PACKAGES:
        (tmp_path / package).symlink_to(ROOT / package)
    shutil.copytree(ROOT / "proofbook", tmp_path / "proofbook", symlinks=True)
    for link in [path for path in (tmp_path / "proofbook").iterdir() if path.is_symlink()]:
        target = link.readlink()
        link.unlink()
        link.write_text(str(target))
    digests = []
    for tree in (ROOT, tmp_path):
        done = ran([sys.executable, "-c", DIGESTS], tree, os.environ | {"PYTHONPATH": str(tree)})
        assert done.returncode == 0, done.stderr
        digests.append(done.stdout)
    assert digests[0] == digests[1]
    assert "plan" in digests[1].split()


DIGESTS = """
from proofbook.runners.__main__ import commands
from proofbook.runners.traces.digest import source_digest
print(*commands(), *map(source_digest, ("ddp", "labs", "sharding")))
"""


def test_a_kind_of_an_installed_package_is_found_by_its_entry_point(tmp_path):
    package, about = tmp_path / "elsewhere", tmp_path / "elsewhere-1.0.dist-info"
    for folder in (package, about):
        folder.mkdir()
    (package / "__init__.py").write_text("")
    (package / "hello.py").write_text(
        "def add_arguments(parser):\n    parser.add_argument('who')\n\n"
        "def main(asked):\n    print('hello', asked.who)\n    return 0\n"
    )
    (package / "kind.py").write_text(
        "from proofbook.runners.system.kinds import Kind\n"
        "KIND = Kind(commands={'hello': '.hello'}, needs_torch=False)\n"
    )
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[proofbook.kinds]\nelsewhere = elsewhere.kind\n")
    own = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = ran([sys.executable, "-m", "proofbook.runners", "hello", "there"], tmp_path, own)
    assert (done.returncode, done.stdout) == (0, "hello there\n"), done.stderr
