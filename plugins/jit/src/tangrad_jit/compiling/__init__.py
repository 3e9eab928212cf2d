"""`tangrad.compile`: guards, forms, back ends, and what is told about them."""
