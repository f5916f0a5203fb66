"""The pages of plans."""
