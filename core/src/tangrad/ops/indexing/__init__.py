"""Ops that read, write and look for places given by, or returned as, index tensors."""
