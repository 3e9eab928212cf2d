"""Passes in order."""
