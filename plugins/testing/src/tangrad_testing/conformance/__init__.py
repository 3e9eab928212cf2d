"""Tests of every op on every device: `pytest --pyargs tangrad_testing.conformance`."""
