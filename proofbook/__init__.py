"""The package of a wheel: the command `proofbook`, the judge, and links to what stands beside it.

So its parts have one name, in a clone and in a wheel: `proofbook.runners`, `proofbook.generator`.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
if not (_HERE / "runners").is_dir():  # an archive was unpacked where links become files
    __path__.append(str(_HERE.parent))
