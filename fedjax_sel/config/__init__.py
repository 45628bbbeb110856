"""Run configurations: plain nested dictionaries, written in YAML and resolved to values.

A component (selector, trainer, model, ...) is a name with parameters, or the bare name:

    data: {name: digits}                             # with seed: null, every run draws its own test examples
    partition: {name: dirichlet, clients: 100, alpha: 0.3}
    model: {name: mlp, hidden: [64]}
    client_selection: entropy
    cohort_size: 10
    rounds: 100
    seeds: 5
    devices: {name: lognormal, spread: 0.6}          # null: rounds take no simulated time
    availability: {name: bernoulli, p: 0.8}          # who can be reached
    volatility: {name: bernoulli, p: 0.9}            # who comes back; no selector knows this in advance
    deadline: {seconds: 60, late: drop}
    callbacks: {early_stopping: {patience: 5}, table: {}}

`resolve` fills in every default, so that the resulting frozen `Config` reproduces the run even if the defaults change
later, and rejects unknown keys and values of the wrong type. `build` makes the values themselves and checks them
together. The parameters are read from the dataclasses; they are not listed again here.
"""

from fedjax_sel.catalog import check_name
from fedjax_sel.config.build import Run, build
from fedjax_sel.config.callbacks import CALLBACKS
from fedjax_sel.config.components import KINDS, SOURCE_NAMES
from fedjax_sel.config.config import Config, dump, fingerprint, flat, is_same, write_value
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
    "is_same",
    "list_presets",
    "load",
    "load_file",
    "override",
    "parse_yaml",
    "rename",
    "resolve",
    "translate_key",
    "translate_parameter",
    "write_value",
]
