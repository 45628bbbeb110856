"""Runs with the settings of public tables, and what comes out beside what was published."""
