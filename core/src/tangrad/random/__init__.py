"""Random numbers: the Philox generator and its state."""
