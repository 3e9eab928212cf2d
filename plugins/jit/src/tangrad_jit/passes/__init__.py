"""Rewrite graphs: a file per pass, each with its rule."""
