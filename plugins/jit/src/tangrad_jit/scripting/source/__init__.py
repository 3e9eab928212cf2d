"""Where programs come from: sources, places in them, and errors that show these."""
