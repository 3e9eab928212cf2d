"""Faulty devices, by which the kit itself is graded: each has one fault, and must be found out.

`python -m tangrad_testing.mutants` runs a campaign and reports which check killed which.
"""
