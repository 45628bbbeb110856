"""Examples, who owns them, and where they come from."""
