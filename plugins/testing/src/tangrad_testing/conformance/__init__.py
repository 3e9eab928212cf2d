"""Test bodies that hold for every op on every device; `pytest --pyargs tangrad_testing.conformance`."""
