"""Ops element by element that are scalar expressions, activations aside."""
