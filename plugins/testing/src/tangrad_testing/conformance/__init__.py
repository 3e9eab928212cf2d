"""Test bodies that hold for every op on every device; `pytest --pyargs` finds them here."""
