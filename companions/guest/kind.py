"""Questions in the pages of any MkDocs site."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(in_other_sites=".plugin:GuestPlugin")
