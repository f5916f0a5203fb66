"""The generator turns traces and YAML lessons into Markdown pages. It never imports torch."""
