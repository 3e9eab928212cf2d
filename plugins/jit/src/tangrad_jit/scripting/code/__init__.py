"""The typed tree as text: the code of archives, and graphs."""
