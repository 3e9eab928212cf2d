"""What the numeric suite of graphs is made of."""
