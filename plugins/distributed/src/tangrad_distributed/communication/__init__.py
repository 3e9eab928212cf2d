"""What ranks tell each other: collectives, messages, objects, and work that is under way."""
