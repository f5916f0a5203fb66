"""A built site → one zip and its SHA-256, the same to the byte for the same site.

Files stand in it by name, all with one date (`SOURCE_DATE_EPOCH`, in UTC, else the first that a zip
can hold) and the same permissions. Deflate's bytes depend on the zlib that packs them; another
machine's zip can differ where the files in it do not.

    python -m generator.website.archive site/book site/proofbook.zip
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

FIRST_DATE = 315532800  # 1980-01-01, in seconds since 1970
READABLE = 0o100644 << 16  # a plain file that its owner may write and anybody read
UNIX = 3


def pack(site: Path, archive: Path, date: int) -> str:
    """Write a folder into a zip, beside it `NAME.zip.sha256`; returns the SHA-256.

    Args:
        site: the folder; in the zip it has the zip's name.
        archive: the zip, overwritten.
        date: of every file in it, in seconds since 1970.
    """
    stamp = datetime.fromtimestamp(max(date, FIRST_DATE), UTC).timetuple()[:6]
    with zipfile.ZipFile(archive, "w") as packed:
        files = {path.relative_to(site).as_posix(): path for path in site.rglob("*")}
        for name in sorted(name for name, path in files.items() if path.is_file()):
            entry = zipfile.ZipInfo(f"{archive.stem}/{name}", stamp)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, UNIX
            entry.external_attr = READABLE
            packed.writestr(entry, files[name].read_bytes())
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    archive.with_name(f"{archive.name}.sha256").write_text(f"{found}  {archive.name}\n")
    return found


def main() -> int:
    """Pack the folder named on the command line."""
    site, archive = Path(sys.argv[1]), Path(sys.argv[2])
    found = pack(site, archive, int(os.environ.get("SOURCE_DATE_EPOCH") or FIRST_DATE))
    sys.stdout.write(f"{archive}, {archive.stat().st_size / 1e6:.1f} MB, SHA-256 {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
