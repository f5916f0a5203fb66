"""Each page as Markdown, beside the page, for programs that read."""
