"""What is told of a run beside its work: the last collectives, and where ranks are."""
