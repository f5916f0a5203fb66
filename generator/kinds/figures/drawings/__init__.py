"""One module for each kind of picture: rows of words and numbers in, a `Drawing` out."""
