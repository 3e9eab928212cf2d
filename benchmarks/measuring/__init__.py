"""What all measurements share: runs in turn, limits of the machine, rows that may die, tables."""
