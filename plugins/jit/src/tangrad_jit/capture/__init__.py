"""Record a program: what it runs, what it reads of the outside, what it leaves behind."""
