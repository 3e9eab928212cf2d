"""From syntax to the typed tree: names, types, calls and modules."""
