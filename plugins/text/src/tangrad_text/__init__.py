"""Tokens, vocabularies and word vectors: what torchtext computes in its compiled extension."""

from __future__ import annotations

API = 1

__all__: list[str] = []
