"""Render C from the core's op definitions; used while the wheel is built, never installed."""
