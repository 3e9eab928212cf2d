"""The engines of this package; others come by the entry-point group `tangrad.collectives`."""
