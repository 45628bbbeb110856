"""The same work in other simulators, each in its own environment."""
