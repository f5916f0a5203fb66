"""One module a kind of picture: rows of words and numbers in, a Vega-Lite or SVG drawing out."""
