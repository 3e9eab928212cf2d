"""What observers stand on: their bases, histograms, ranges, and what one scale is shared by."""
