"""Regular languages over code points: regular expressions, number ranges and formats, as lazily unfolded positions."""
