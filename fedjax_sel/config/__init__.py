"""A run written down: plain nested dictionaries, in YAML, resolved to values.

A component (selector, trainer, model, ...) is a name and parameters, or the bare name:

    data: {name: digits}                             # seed: null in it: every seed draws its own test examples
    partition: {name: dirichlet, clients: 100, alpha: 0.3}
    model: {name: mlp, hidden: [64]}
    client_selection: entropy
    cohort_size: 10
    rounds: 100
    seeds: 5
    devices: {name: lognormal, spread: 0.6}          # null: rounds take no simulated time
    availability: {name: bernoulli, p: 0.8}          # who can be reached
    volatility: {name: bernoulli, p: 0.9}            # who comes back, which no selector knows before
    deadline: {seconds: 60, late: drop}
    callbacks: {early_stopping: {patience: 5}, table: {}}

`resolve` fills in every default, so that the result reruns the run whatever the defaults become, and refuses what is
unknown or of the wrong type: a frozen `Config`. `build` makes the values themselves and checks them together. The
parameters are those of the dataclasses: there is no second list of them here.
"""

from fedjax_sel.catalog import check_name
from fedjax_sel.config.build import Run, build
from fedjax_sel.config.callbacks import CALLBACKS
from fedjax_sel.config.components import KINDS, SOURCE_NAMES
from fedjax_sel.config.config import Config, dump, fingerprint, flat
from fedjax_sel.config.files import find_preset, list_presets, load, load_file, parse_yaml
from fedjax_sel.config.names import describe_renames, rename, translate_key, translate_parameter
from fedjax_sel.config.resolve import check_once, override, resolve

__all__ = [
    "CALLBACKS",
    "KINDS",
    "SOURCE_NAMES",
    "Config",
    "Run",
    "build",
    "check_name",
    "check_once",
    "describe_renames",
    "dump",
    "find_preset",
    "fingerprint",
    "flat",
    "list_presets",
    "load",
    "load_file",
    "override",
    "parse_yaml",
    "rename",
    "resolve",
    "translate_key",
    "translate_parameter",
]
