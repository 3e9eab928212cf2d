"""The typed tree: expressions and statements after checking."""
