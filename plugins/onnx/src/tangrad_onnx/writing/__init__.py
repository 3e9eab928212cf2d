"""From a program to a file: the graph that is written, and the forms of ops."""
