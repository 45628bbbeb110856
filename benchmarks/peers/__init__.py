"""The same work in other simulators, each in an environment of its own."""
