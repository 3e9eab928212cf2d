"""Ops whose result shares the storage of their input, and the same as copies and writes."""
