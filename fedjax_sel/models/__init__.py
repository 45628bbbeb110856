"""Flax modules that map examples to logits; each takes `train` by keyword."""

from functools import partial

from fedjax_sel import catalog

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
