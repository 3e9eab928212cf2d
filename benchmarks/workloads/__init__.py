"""What is timed: rows of the table by group, and the networks that they share."""
