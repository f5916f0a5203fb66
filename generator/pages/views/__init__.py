"""What single pages are composed of, a module a page or a few that belong together."""
