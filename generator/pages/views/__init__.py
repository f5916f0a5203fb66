"""What a page shows, made from the book: one module a kind of thing, each read by the templates."""
