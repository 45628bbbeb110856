"""Callbacks, which follow a run: one per file, each with one exported class that can be constructed without arguments.

A callback has some of the methods of `engine.callback.Callback`, and receives the history between chunks of rounds.
What it writes depends on the history alone, so a run that was stopped and resumed leaves the same as an uninterrupted
one. The run fills in two fields: `folder`, its folder, and `config`, its configuration. A class with
`needs_variables = True` also receives the global models, in `history.variables`.
"""

from functools import partial

from fedjax_sel import catalog

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
