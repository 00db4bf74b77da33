"""Question sets of our own that a model of a few megabytes can answer: arithmetic, choice, code, format."""
