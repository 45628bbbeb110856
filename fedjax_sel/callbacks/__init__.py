"""Callbacks, which are told how a run goes: one a file, each with one exported class that constructs without arguments.

A callback has some of the methods of `engine.callback.Callback`, and is shown the history between chunks of rounds.
What it writes follows from the history alone, so that a run that was stopped and went on leaves what an uninterrupted
one does. Two fields are filled in by the run: `folder`, its folder, and `config`, its configuration. A class with
`needs_variables = True` is shown the global models as well, in `history.variables`.
"""

from functools import partial

from fedjax_sel import catalog

available = partial(catalog.available, __name__)
load = partial(catalog.load, __name__)
