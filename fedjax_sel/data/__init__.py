"""Examples, their owners, and their sources."""
