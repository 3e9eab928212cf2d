"""Ops that summarize along dimensions: sums, moments, order, counts, running totals."""
