"""The slow paths of dispatch: what the compiled core asks Python when its tables have no answer."""
