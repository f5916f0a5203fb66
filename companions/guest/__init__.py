"""Questions in the pages of a site that is not ours."""
