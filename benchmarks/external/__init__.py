"""Runs with the settings of public tables, and a comparison with the published numbers."""
