"""Algorithms independent of federated learning, shared by the selection of clients and of examples."""
