"""Harder items of the sets of our own, for judging alone: what the embedded model is not trained for.

Asked and graded like the ordinary ones; a model of a few megabytes gets part of them right.
"""
