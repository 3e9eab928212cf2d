"""Run graphs: a plan with memory laid out once, and the compiled loop that walks it."""
