"""What pages are made of: a module for each family of elements, with the macros of its name."""
