"""The form that all papers share."""

SUMMARY_KEYS = ["paper", "scale", "seeds", "environment", "notes", "regime", "conditions", "cells", "studies"]
SUMMARY_KEYS += ["results", "claims"]
