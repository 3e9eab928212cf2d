"""The script language: a typed subset of Python, compiled when it is scripted.

`source` finds text and parses it, `types` says what values are, `check` turns syntax into the typed
tree of `tree`, `program` makes Python code of the tree, `code` prints it as PyTorch's archives hold
it, and `archive` reads and writes these.
"""
