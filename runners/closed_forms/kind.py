"""The closed forms that expressions of this book call by name."""

from proofbook.runners.system.kinds import Kind

KIND = Kind(laws=".steps:LAWS")
