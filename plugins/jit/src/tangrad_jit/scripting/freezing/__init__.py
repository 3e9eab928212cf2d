"""Scripted modules with constants in the place of attributes, for `jit.freeze`."""
