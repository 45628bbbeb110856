"""Bad inputs, as a table: what is given, and the words of the one line that answers; none silent, none a traceback.

`REFUSED` and `WARNED` are Python expressions in what `names` gives; `BROKEN` are strategies that break the contract,
refused while a program is traced; `COUNTED` are strategies whose numbers cannot be, refused in debug mode and counted
in compiled runs; `COMMANDS` are command lines. But for `COUNTED`, nothing compiles.
"""

# ruff: noqa: F401  (the expressions of the tables name what is imported)

import dataclasses
import functools
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pandas as pd
import pytest
from flax import nnx
from typer.testing import CliRunner

import fedjax_sel as fs
from fedjax_sel import models, partition
from fedjax_sel.aggregation.fedavgm import FedAvgM
from fedjax_sel.aggregation.fedopt import FedOpt
from fedjax_sel.aggregation.krum import Krum
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.aggregation.trimmed_mean import TrimmedMean
from fedjax_sel.callbacks.early_stopping import EarlyStopping
from fedjax_sel.callbacks.table import Table
from fedjax_sel.catalog import list_notes
from fedjax_sel.cli import main
from fedjax_sel.client_selection import CriticalFL
from fedjax_sel.client_selection._ops import epsilon_greedy_m, gumbel_m, top_m, uniform_m
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.oort import Oort
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.correction.proximal import Proximal
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.data.own import from_frame, from_items
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.data_selection.random_subset import RandomSubset
from fedjax_sel.devices import laws
from fedjax_sel.devices.availability import Always, Bernoulli, Diurnal, Function, Trace
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.privacy import epsilon_of
from fedjax_sel.local_training import Alternating
from fedjax_sel.local_training._schedule import Cosine, Exponential, Steps
from fedjax_sel.local_training.optax import Optax
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.protocols import Availability
from fedjax_sel.pytree import Pytree
from fedjax_sel.report.summary import build_table, summarize
from fedjax_sel.types import Cohort

N = 8


class Averages(nn.Module):
    """Loses the axis of the batch."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x).mean(0)


class Scaled(fs.ClientSelector):
    """A field that must be a number."""

    factor: float = 1.0

    def select(self, key, state, ctx):
        return top_m(key, self.factor * ctx.num_examples, ctx.available, ctx.m)


class Misspelt(fs.ClientSelector):
    """Overrides nothing but `select`."""

    def select(self, key, state, ctx):
        return uniform_m(key, ctx.available, ctx.m)

    def obsrve(self, key, state, ctx, cohort):
        return state


class Flagged(fs.ClientSelector):
    """Does not say that it depends on the number of rounds."""

    uses_round = True

    def select(self, key, state, ctx):
        return uniform_m(key, ctx.available, ctx.m)


class Swapped(fs.ClientSelector):
    """Has the arguments of `select` in another order."""

    def select(self, state, key, ctx):
        return uniform_m(key, ctx.available, ctx.m)


class Sized(fs.ClientSelector):
    """Wants an array where programs are compared."""

    sizes: object = fs.static(default=None)

    def select(self, key, state, ctx):
        return uniform_m(key, ctx.available, ctx.m)


class Turned(fs.DataSelector):
    """Calls a signal as the engine calls something else."""

    uses_turn = True

    def signals(self):
        return {"turn": fs.signals.Loss()}

    def select(self, key, state, valid, *, turn):
        return valid


class Partial(fs.DataSelector):
    """Chooses among all examples by a signal of some."""

    def signals(self):
        return {"minibatch_loss": fs.signals.MinibatchLoss(32)}

    def select(self, key, state, valid, *, minibatch_loss):
        return valid


class Deaf(fs.ClientSelector):
    """Does not take the signal that it asks for."""

    def signals(self):
        return fs.Signals(before=[fs.signals.Loss()])

    def select(self, key, state, ctx):
        return uniform_m(key, ctx.available, ctx.m)


class Pair(nn.Module):
    """Returns features, too."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x), x


class Nothing(nn.Module):
    """Forgets to return."""

    @nn.compact
    def __call__(self, x):
        nn.Dense(3)(x)


class Trained(nn.Module):
    """Calls the flag otherwise."""

    @nn.compact
    def __call__(self, x, training_mode=False, features=False):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not training_mode)(x))


class CamelCase(nn.Module):
    """Calls it as in other languages."""

    @nn.compact
    def __call__(self, x, isTraining=False):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not isTraining)(x))


class NoOptimiser(SGD):
    """Forgets to return one."""

    def build_optimizer(self, rate):
        return None


class HalfGradient(SGD):
    """Returns the gradient alone."""

    def batch_gradient(self, *given):
        return super().batch_gradient(*given)[0]


class ByKeyword(nnx.Module):
    """Takes its generators by keyword alone."""

    def __init__(self, *, rngs):
        self.dense = nnx.Linear(2, 3, rngs=rngs)


class Helped(fs.ClientSelector):
    """Has methods of its own, none of them named like one that could be overridden."""

    def select(self, key, state, ctx):
        return top_m(key, self.rank(ctx), ctx.available, ctx.m)

    def rank(self, ctx):
        return ctx.num_examples


M = "it must be a whole number from 1 to N, or a fraction in (0, 1]"
SEEDS = "give how many (at least 1), or which: different whole numbers from 0 to 2^32 - 1"
ROUNDS = "it must be a whole number, at least 1"

REFUSED: list[tuple[str, str]] = [
    # Fields and arguments.
    (
        "make(client_selection=Scaled(factor='x'))",
        "client_selection: Scaled: factor is 'x' (str); it must be a number or an array, as only a static field",
    ),
    (
        "make(cohortsize=3, client_selection=Scaled(fctor=2.0))",
        "Scaled: unknown argument 'fctor'; did you mean 'factor'?",
    ),
    ("fs.Experiment(task, cohortsize=3)", "experiment: unknown argument 'cohortsize'; did you mean 'cohort_size'?"),
    ("SGD(lr=0.1)", "sgd: unknown argument 'lr'. There are: learning_rate, batch_size"),
    (
        "run(task=fs.Task(models.from_functions(lambda k, x: {'w': jnp.zeros((2, 3), int)}, lambda v, x: x @ v['w'])))",
        "task: FunctionModel: the parameter ['w'] is int32; what is trained must be floats",
    ),
    (
        "fs.metrics.difference(np.ones((5, 10)), np.zeros((5, 10)))",
        "difference: the values have the shapes (5, 10) and (5, 10); both must have one number a seed, as in history[",
    ),
    ("fs.metrics.difference(np.ones(5), np.zeros(4))", "difference: the values have the shapes (5,) and (4,)"),
    ("laws.LogNormal(compute=-1.0).draw(0, 8)", "law LogNormal: compute is -1.0 FLOP/s; it must be finite and above 0"),
    # Parts that do not go together, and numbers that cannot be.
    (
        "fs.simulate(experiment.replace(aggregation=fs.aggregation.FedNova(), correction=Proximal()), federation)",
        "fednova divides updates by what local steps add up to, which Proximal(mu=0.001) changes; use one of them",
    ),
    (
        "fs.simulate(experiment.replace(aggregation=fs.aggregation.FedNova(), local_training=Optax()), federation)",
        "fednova needs local training whose update is a weighted sum of gradients, such as sgd",
    ),
    (
        "fs.simulate(experiment.replace(aggregation=fs.aggregation.FedNova(), local_training=Optax("
        "optimizer=functools.partial(optax.sgd, momentum=0.9))), federation)",
        "fednova needs local training whose update is a weighted sum of gradients, such as sgd",
    ),
    (
        "from_frame(pd.DataFrame({'a': [1.0, 2.0], 'p': [0.5, 1.7]}), label='p')",
        "column 'p' holds numbers that are not",
    ),
    ("from_items([(np.zeros(2), 'a')])", "item 0 has the label 'a'; labels must be whole numbers"),
    ("from_items([(np.zeros(2), float('nan'))])", "item 0 has the label nan; labels must be whole numbers"),
    ("run(task=fs.Task(Averages()))", "Averages returns outputs of shape (3,) for a batch of one example; it must be"),
    (
        "fs.simulate(experiment.replace(task=fs.Task.on(models.MLP(3), fs.load('iris'))), federation)",
        "the task was made for examples of 4 features or channels, but these have shape (2,)",
    ),
    ("Optax(optimizer='sgd', hyperparams={'nesterov': 1})", "optax: nesterov is true or false, not a number"),
    (
        "models.ResNet(classes=3, depth=6, widths=(8, 4)).init(jax.random.key(0), np.zeros((1, 8, 8, 3)))",
        "widths are (8, 4); with shortcut 'pad' none may be below the one before it",
    ),
    (
        "fs.Federation(blobs, partition.Iid(4), public=np.where(np.eye(2, dtype=np.float32) > 0, np.nan, 0)).draw(0)",
        "federation: public: 2 of 2 examples hold NaN or infinity",
    ),
    # The arguments of `simulate` and `sweep`.
    ("fs.simulate(federation, experiment)", "the experiment is a Federation; it must be an Experiment; the experiment"),
    ("fs.simulate(blobs, experiment)", "the experiment is a Dataset; it must be an Experiment"),
    ("fs.simulate(task, federation)", "the experiment is a Task; it must be an Experiment"),
    ("fs.simulate(fs.Experiment, federation)", "the experiment is Experiment, a class; give Experiment(...)"),
    ("fs.simulate(None, federation)", "the experiment is None; it must be an Experiment"),
    ("fs.simulate('digits', federation)", "the experiment is a str; it must be an Experiment"),
    (
        "fs.simulate([experiment], federation)",
        "the experiment is a list; it must be an Experiment; several experiments",
    ),
    (
        "fs.simulate(experiment, blobs)",
        "the data is a Dataset, whose examples belong to nobody; give Federation(dataset",
    ),
    ("fs.simulate(experiment, experiment)", "the data is an Experiment; it must be a Federation"),
    ("fs.simulate(experiment, (X, Y))", "the data is a tuple; it must be a Federation"),
    ("fs.simulate(experiment, X)", "the data is float32 of shape (12, 2); it must be a Federation"),
    ("fs.simulate(experiment, 'digits')", "the data is a str; it must be a Federation"),
    ("fs.simulate(experiment, None)", "the data is None; it must be a Federation"),
    ("fs.simulate(experiment, fs.Federation)", "the data is Federation, a class; give Federation(...)"),
    ("fs.simulate(experiment, federation, 0)", f"seeds are 0; {SEEDS}"),
    ("fs.simulate(experiment, federation, -2)", f"seeds are -2; {SEEDS}"),
    ("fs.simulate(experiment, federation, [])", f"seeds are []; {SEEDS}"),
    ("fs.simulate(experiment, federation, [-1, 2])", f"seeds are [-1, 2]; {SEEDS}"),
    ("fs.simulate(experiment, federation, [3, 4, 3])", f"seeds are [3, 4, 3]; {SEEDS}"),
    ("fs.simulate(experiment, federation, [2**32])", f"seeds are [4294967296]; {SEEDS}"),
    ("fs.simulate(experiment, federation, [0.5])", f"seeds are [0.5]; {SEEDS}"),
    ("fs.simulate(experiment, federation, 1.5)", f"seeds are 1.5; {SEEDS}"),
    ("fs.simulate(experiment, federation, 'ab')", f"seeds are 'ab'; {SEEDS}"),
    ("fs.simulate(experiment, federation, None)", f"seeds are None; {SEEDS}"),
    ("fs.simulate(experiment, federation, True)", f"seeds are True; {SEEDS}"),
    ("fs.simulate(experiment, federation, [True])", f"seeds are [True]; {SEEDS}"),
    ("fs.simulate(experiment, federation, jax.random.key(0))", "seeds are Array("),
    (
        "fs.simulate(experiment, federation, 1, 'scan')",
        "execution is 'scan'; it must be an Execution, or give its fields",
    ),
    ("fs.simulate(experiment, federation, 1, Execution)", "it must be an Execution, or give its fields by name"),
    ("fs.simulate(experiment, federation, round=3)", "unknown option 'round'"),
    ("fs.simulate(experiment, federation, layuot='scan')", "did you mean 'layout'"),
    (
        "fs.simulate(experiment, federation, layout='pmap')",
        "layout is 'pmap'; it must be 'auto', 'vmap', 'scan' or a L",
    ),
    ("fs.simulate(experiment, federation, layout=fs.Layout)", "it must be 'auto', 'vmap', 'scan' or a Layout"),
    ("fs.simulate(experiment, federation, layout=3)", "layout is 3; it must be 'auto', 'vmap', 'scan' or a Layout"),
    ("fs.simulate(experiment, federation, mesh=2)", "mesh is 2; it must be two whole numbers"),
    ("fs.simulate(experiment, federation, mesh=(1,))", "mesh is (1,); it must be two whole numbers"),
    ("fs.simulate(experiment, federation, mesh=(1, 64))", "64"),
    ("fs.simulate(experiment, federation, mesh=(0, 1))", "mesh is (0, 1); it must be two whole numbers"),
    ("fs.simulate(experiment, federation, mesh='all')", "mesh is 'all'; it must be two whole numbers"),
    ("fs.simulate(experiment, federation, chunk=0)", "chunk is 0; it must be at least 1 round"),
    ("fs.simulate(experiment, federation, chunk=-1)", "chunk is -1; it must be at least 1 round"),
    ("fs.simulate(experiment, federation, chunk=2.5)", "chunk is 2.5; it must be at least 1 round"),
    ("fs.simulate(experiment, federation, chunk='3')", "chunk is '3'; it must be at least 1 round"),
    (
        "fs.simulate(experiment, federation, callbacks=[3])",
        "callbacks holds 3; a callback is a function of the history",
    ),
    ("fs.simulate(experiment, federation, callbacks=['table'])", "callbacks holds 'table'; a callback is a function"),
    ("fs.simulate(experiment, federation, callbacks=[None])", "callbacks holds None; a callback is a function"),
    ("fs.simulate(experiment, federation, callbacks='table')", "callbacks is 'table'; it must be a list of callbacks"),
    ("fs.simulate(experiment, federation, callbacks=print)", "it must be a list of callbacks"),
    ("fs.simulate(experiment, federation, callbacks=None)", "callbacks is None; it must be a list of callbacks"),
    (
        "fs.simulate(experiment, federation, callbacks=[EarlyStopping])",
        "callbacks holds the class EarlyStopping; give an",
    ),
    (
        "fs.simulate(experiment, federation, checkpoints='here')",
        "checkpoints is 'here'; it must be Checkpoints(folder)",
    ),
    (
        "fs.simulate(experiment, federation, checkpoints=Checkpoints(Path(__file__) / 'here'))",
        "here cannot be written (Not a directory); give another folder",
    ),
    (
        "models.from_nnx(ByKeyword)",
        "from_nnx: ByKeyword cannot be made by ByKeyword(rngs) (too many positional arguments); it must be a function",
    ),
    ("fs.simulate(experiment, federation, checkpoints=True)", "checkpoints is True; it must be Checkpoints(folder)"),
    ("fs.simulate(experiment, federation, memory='4GB')", "memory is '4GB'; it must be a number of bytes above 0"),
    ("fs.simulate(experiment, federation, memory=0)", "memory is 0; it must be a number of bytes above 0"),
    ("fs.simulate(experiment, federation, memory=1)", "but a device has 9.31e-10 GiB; lower data.num_examples"),
    ("fs.simulate(experiment, federation, debug='yes')", "debug is 'yes'; it must be True or False"),
    ("fs.sweep(experiment, federation)", "the experiments are an Experiment; sweep takes a list of them"),
    ("fs.sweep([], federation)", "there are no experiments; give at least one"),
    ("fs.sweep([experiment, 3], federation)", "the experiment is an int; it must be an Experiment"),
    (
        "fs.sweep([experiment, make(client_selection=Entropy())], federation)",
        "but two of these differ in client_selection (Uniform() and Entropy",
    ),
    ("fs.sweep([experiment, make(rounds=3)], federation)", "experiments differ in rounds, which is not a float"),
    ("fs.Layout(seeds='pmap')", "seeds is 'pmap'; it must be 'vmap' or 'scan'"),
    ("fs.Layout(clients=0)", f"clients is 0; {ROUNDS}"),
    ("fs.Layout(clients=2.0)", f"clients is 2.0; {ROUNDS}"),
    ("fs.Layout(clients=True)", f"clients is True; {ROUNDS}"),
    ("fs.Layout(examples=0)", f"examples is 0; {ROUNDS}"),
    ("fs.Layout(examples=None)", f"examples is None; {ROUNDS}"),
    # The fields of an experiment.
    ("make(task=models.MLP(3))", "task is MLP("),
    ("make(task=fs.Task)", "it must be a Task, as in Task.on(model, dataset)"),
    ("make(task=None)", "task is None; it must be a Task, as in Task.on(model, dataset)"),
    ("make(client_selection=Uniform)", "client_selection is Uniform, a class; give an instance, as in Uniform()"),
    (
        "make(client_selection='uniform')",
        "client_selection is 'uniform' (str); it must be an instance of fedjax_sel.Cl",
    ),
    (
        "make(client_selection=None)",
        "client_selection is None (NoneType); it must be an instance of fedjax_sel.ClientS",
    ),
    ("make(client_selection=lambda key, state, ctx: None)", "it must be an instance of fedjax_sel.ClientSelector"),
    ("make(client_selection=Everything())", "client_selection is Everything() (Everything); it must be an instance"),
    ("make(data_selection=Everything)", "data_selection is Everything, a class; give an instance, as in Everything()"),
    ("make(data_selection=Uniform())", "data_selection is Uniform() (Uniform); it must be an instance of fedjax_sel.D"),
    ("make(data_selection=0.5)", "data_selection is 0.5 (float); it must be an instance of fedjax_sel.DataSelector"),
    ("make(local_training=SGD)", "local_training is SGD, a class; give an instance, as in SGD()"),
    ("make(local_training=0.1)", "local_training is 0.1 (float); it must be an instance of fedjax_sel.LocalTrainer"),
    ("make(local_training=optax.sgd(0.1))", "it must be an instance of fedjax_sel.LocalTrainer"),
    ("make(correction=Scaffold)", "correction is Scaffold, a class; give an instance, as in Scaffold()"),
    ("make(correction=None)", "correction is None (NoneType); it must be an instance of fedjax_sel.Correction"),
    ("make(aggregation=Mean)", "aggregation is Mean, a class; give an instance, as in Mean()"),
    ("make(aggregation='mean')", "aggregation is 'mean' (str); it must be an instance of fedjax_sel.Aggregator"),
    ("make(availability=Always)", "availability is Always, a class; give an instance, as in Always()"),
    ("make(availability=0.5)", "availability is 0.5 (float); it must be an instance of fedjax_sel.Availability"),
    ("make(deadline=60)", "deadline is 60; it must be a Deadline, as in Deadline(seconds=60)"),
    ("make(deadline=Deadline)", "it must be a Deadline, as in Deadline(seconds=60)"),
    ("run(cohort_size=9)", f"cohort_size is 9, but there are N = 8 clients; {M}"),
    ("run(cohort_size=0)", f"cohort_size is 0, but there are N = 8 clients; {M}"),
    ("run(cohort_size=-1)", f"cohort_size is -1, but there are N = 8 clients; {M}"),
    ("run(cohort_size=1.5)", f"cohort_size is 1.5, but there are N = 8 clients; {M}"),
    ("run(cohort_size=0.0)", f"cohort_size is 0.0, but there are N = 8 clients; {M}"),
    ("run(cohort_size=-0.5)", f"cohort_size is -0.5, but there are N = 8 clients; {M}"),
    ("run(cohort_size=float('nan'))", f"cohort_size is nan, but there are N = 8 clients; {M}"),
    ("run(cohort_size='3')", f"cohort_size is '3', but there are N = 8 clients; {M}"),
    ("run(cohort_size=None)", f"cohort_size is None, but there are N = 8 clients; {M}"),
    ("run(cohort_size=True)", f"cohort_size is True, but there are N = 8 clients; {M}"),
    ("run(rounds=0)", f"rounds is 0; {ROUNDS}"),
    ("run(rounds=-3)", f"rounds is -3; {ROUNDS}"),
    ("run(rounds=2.0)", f"rounds is 2.0; {ROUNDS}"),
    ("run(rounds='2')", f"rounds is '2'; {ROUNDS}"),
    ("run(rounds=None)", f"rounds is None; {ROUNDS}"),
    ("run(rounds=True)", f"rounds is True; {ROUNDS}"),
    ("run(evaluate_every=0)", f"evaluate_every is 0; {ROUNDS}"),
    ("run(evaluate_every=0.5)", f"evaluate_every is 0.5; {ROUNDS}"),
    ("run(evaluate_last=0)", f"evaluate_last is 0; {ROUNDS}"),
    ("run(signal_split='test')", "signal_split is 'test'; it must be 'training' or 'holdout'"),
    (
        "run(signal_split='holdout', client_selection=Entropy())",
        "but no client has hold-out examples; give the federation a holdout",
    ),
    (
        "fs.simulate(make(signal_split='holdout', client_selection=Entropy(), cohort_size=2), "
        "fs.Federation(one_small, partition.Natural(), holdout=0.5))",
        "but 1 of 2 clients have no hold-out examples (the first is client 1); give it a larger holdout, or only",
    ),
    ("run(client_selection=PowerOfChoice(d=2))", "d is 2 candidates;"),
    ("run(client_selection=PowerOfChoice(d=9))", "d is 9 candidates;"),
    (
        "run(task=fs.Task(models.LogisticRegression(2)))",
        "2 logits an example, but the data has 3 classes; build the mod",
    ),
    ("run(task=fs.Task(models.LogisticRegression(10)))", "10 logits an example, but the data has 3 classes; build the"),
    ("run(deadline=Deadline(1.0))", "the deadline is 1.0 seconds, but the clients have no devices, so nobody is late"),
    (
        "run(availability=Bernoulli(np.array([0.5, 0.5])))",
        "p has shape (2,); it is one probability for all, or one for",
    ),
    ("run(availability=Trace(np.ones((2, 3), bool)))", "present is bool of shape (2, 3); it must be bool, [rounds, N]"),
    ("run(availability=Trace(np.ones((2, 8))))", "present is float64 of shape (2, 8); it must be bool"),
    ("run(correction=Scaffold(), local_training=Optax(optimizer='adam'))", "adam"),
    (
        "fs.simulate(experiment, fs.Federation(bare, partition.Iid(N)))",
        "there are no test examples to evaluate on; load",
    ),
    (
        "run(availability=Function(lambda round, n: jnp.asarray(np.random.rand(n) < 0.5)))",
        "random numbers were drawn from np.random: a compiled program draws them once",
    ),
    (
        "run(volatility=Function(lambda round, n: jnp.ones(n, bool) if round < 2 else jnp.zeros(n, bool)))",
        "write jnp.where or jax.lax.cond instead of `if`",
    ),
    (
        "fs.Federation(blobs, partition.Function(lambda y, rng: np.random.randint(0, 3, len(y)))).draw(0)",
        "random numbers were drawn from np.random: draw them from rng, so that every seed has a partition of its own",
    ),
    (
        "fs.Federation(blobs, partition.Function(lambda y, rng: np.full(len(y), -1))).draw(0)",
        "the partition function returned -1 (nobody) for all examples; clients count from 0",
    ),
    ("experiment.replace(selector=Uniform())", "unknown argument 'selector'; did you mean 'client_selection'?"),
    ("make(trainer=SGD())", "unknown argument 'trainer'; did you mean 'local_training'?"),
    (
        "run(client_selection=Swapped())",
        "Swapped.select takes (state, key, ctx); it must take (key, state, ctx), in this",
    ),
    (
        "Sized(sizes=np.ones(2))",
        "Sized: sizes is array([1., 1.]); a static field cannot hold an array, as programs are",
    ),
    (
        "Signals(before={'my.loss': signals.Loss()})",
        "signal 'my.loss': methods get its value as an argument of this na",
    ),
    ("run(data_selection=Turned())", "Turned has a signal 'turn', and uses_turn gives it another value of this name"),
    ("run(data_selection=Partial())", "Partial wants minibatch_loss, which looks at a part of a client's examples; a "),
    (
        "run(client_selection=CriticalFL(Deaf(), smallest=1))",
        "Deaf.select cannot be called as it is declared (got an unexpected keyword argument 'loss')",
    ),
    (
        "run(task=task.replace(personal=('kernel',)), local_training=Alternating(SGD(steps=10**9, batch_size=4096)))",
        "examples forward and backward in a round, and counts of examples are below 2^31; lower cohort_size, or",
    ),
    (
        "from_frame(pd.DataFrame(X), label='1', client=None)",
        "there is no column '1', but there is 1 (int); give its name as the table has it",
    ),
    ("from_frame(pd.DataFrame(X), label=7, client=None)", "unknown column of table: '7'. There are: 0, 1"),
    (
        "fs.sweep([experiment, experiment], federation, seeds=2, callbacks=[Table()])",
        "callbacks.table keeps one curve for each seed, but this is the history of several experiments",
    ),
    ("run(task=fs.Task(Pair()))", "task: Pair returns a tuple; it must return one array, a row for each example"),
    ("run(task=fs.Task(Nothing()))", "task: Nothing returns nothing; it must return one array, a row for each example"),
    (
        "epsilon_of(experiment, federation, 1e-5)",
        "data is a Federation; it must be the data of one seed, federation.draw",
    ),
    (
        "fs.Task(models.MLP(3), metrics=['f1'])",
        "metrics is ['f1']; it must be a mapping from names to functions, or to",
    ),
    (
        "fs.Task(models.MLP(3), loss='focal')",
        "loss is 'focal'; it must be a function of outputs and targets, or a loss of",
    ),
    ("fs.Task(models.MLP(3), personal='Dense_0')", "personal is 'Dense_0'; it must be names of parts, as ('Dense_0',)"),
    # Numbers of strategies.
    ("Entropy(epsilon=1.5)", "epsilon is 1.5; it must be in [0, 1]"),
    ("Entropy(epsilon=-0.1)", "epsilon is -0.1; it must be in [0, 1]"),
    ("Entropy(epsilon=float('nan'))", "epsilon is nan; it must be in [0, 1]"),
    ("Entropy(epsilon='0.1')", "epsilon is '0.1'; it must be a number in [0, 1]"),
    ("Entropy(epsilon=True)", "epsilon is True; it must be a number in [0, 1]"),
    ("Entropy(epsilon=None)", "epsilon is None; it must be a number in [0, 1]"),
    ("Entropy(epsilon=[0.1, 0.2])", "epsilon is [0.1, 0.2]; it must be a number in [0, 1]"),
    ("Entropy(epsilon=1j)", "epsilon is 1j; it must be a number in [0, 1]"),
    ("Entropy(epsilon=np.float32(2))", "epsilon is np.float32(2.0); it must be in [0, 1]"),
    ("Entropy(epsilon=jnp.array([0.5, 2.0]))", "it must be in [0, 1]"),
    ("Entropy(temperature=0.0)", "temperature is 0.0; it must be 1e-30 or above"),
    ("PowerOfChoice(d=0)", "d is 0; it must be a whole number, at least 1"),
    ("PowerOfChoice(d=2.5)", "d is 2.5; it must be a whole number, at least 1"),
    ("PowerOfChoice(d='5')", "d is '5'; it must be a whole number, at least 1"),
    ("PowerOfChoice(d=np.int64(0))", "d is 0; it must be a whole number, at least 1"),
    ("PowerOfChoice(d=jnp.int32(0))", "d is 0; it must be a whole number, at least 1"),
    ("Oort(percentile=101)", "percentile is 101; it must be in [0, 100]"),
    ("Oort(step=0)", "step is 0; it must be a whole number, at least 1"),
    ("fs.client_selection.TiFL(tiers=0)", "tiers is 0; it must be a whole number, at least 1"),
    ("fs.client_selection.FedCS(fraction=0)", "fraction is 0; it must be in (0, 1]"),
    ("RandomSubset(fraction=0)", "fraction is 0; it must be in (0, 1]"),
    ("RandomSubset(fraction=2)", "fraction is 2; it must be in (0, 1]"),
    ("fs.data_selection.Entropy(temperature=0)", "temperature is 0; it must be in [1e-30, inf)"),
    ("SGD(learning_rate=-0.1)", "learning_rate is -0.1; it must be in [0, "),
    ("SGD(learning_rate=float('nan'))", "learning_rate is nan; it must be in [0, "),
    ("SGD(learning_rate=float('inf'))", "learning_rate is inf; it must be in [0, "),
    ("SGD(learning_rate='0.1')", "learning_rate is '0.1'; it must be a number in [0, "),
    ("SGD(learning_rate=None)", "learning_rate is None; it must be a number in [0, "),
    ("SGD(momentum=-0.1)", "momentum is -0.1; it must be in [0, 1)"),
    ("SGD(momentum=1)", "momentum is 1; it must be in [0, 1)"),
    ("SGD(momentum=float('nan'))", "momentum is nan; it must be in [0, 1)"),
    ("SGD(momentum=float('inf'))", "momentum is inf; it must be in [0, 1)"),
    ("SGD(weight_decay=-0.1)", "weight_decay is -0.1; it must be in [0, "),
    ("SGD(weight_decay=float('nan'))", "weight_decay is nan; it must be in [0, "),
    ("SGD(weight_decay=float('inf'))", "weight_decay is inf; it must be in [0, "),
    ("SGD(batch_size=0)", "batch_size is 0; it must be a whole number, at least 1"),
    ("SGD(batch_size=2.0)", "batch_size is 2.0; it must be a whole number, at least 1"),
    ("SGD(epochs=0)", "epochs is 0; it must be a whole number, at least 1"),
    ("SGD(epochs=1.5)", "epochs is 1.5; it must be a whole number, at least 1"),
    ("SGD(steps=0)", "steps is 0; it must be a whole number, at least 1"),
    ("SGD(epochs=2, steps=3)", "epochs is 2 and steps is 3; give one of them"),
    ("SGD(schedule='cosine')", "schedule is 'cosine'"),
    ("SGD(schedule=Cosine)", "schedule is <class 'fedjax_sel.local_training._schedule.Cosine'>; it must be a schedule"),
    ("Optax(epochs=2, steps=3)", "epochs is 2 and steps is 3; give one of them"),
    ("Optax(optimizer='adm')", "did you mean 'adam'"),
    ("Optax(optimizer=3)", "optimizer is 3; it must be a name, or a function of numbers"),
    ("Optax(optimizer=optax.sgd(0.1))", "it must be a name, or a function of numbers"),
    ("Optax(optimizer='adam', hyperparams={'beta': 0.9})", "unknown number of optax: 'beta'"),
    ("Optax(optimizer='adam', hyperparams={'b1': 'high'})", "hyperparams.b1 is 'high'; it must be"),
    ("Optax(optimizer='adam', hyperparams={'b1': 1.0})", "hyperparams.b1 is 1.0; it must be in [0, 1)"),
    ("Optax(optimizer='sgd', hyperparams={'momentum': 1.5})", "hyperparams.momentum is 1.5; it must be in [0, 1)"),
    ("Optax(optimizer='adam', hyperparams=[0.9])", "hyperparams is [0.9]; it must be a mapping"),
    ("Optax(0.1, hyperparams={'learning_rate': 0.2})", "learning_rate is a field of its own"),
    ("Exponential(rate=-1)", "rate is -1; it must be in [0, inf)"),
    ("Steps(at='150')", "at is '150'"),
    ("FedAvgM(momentum=1.0)", "momentum is 1.0; it must be in [0, 1)"),
    ("FedAvgM(weighting='sise')", "did you mean 'size'"),
    ("FedOpt(beta2=1)", "beta2 is 1; it must be in [0, 1)"),
    ("FedOpt(optimizer='adamw')", "fedopt: optimizer is 'adamw'; it must be one of "),
    ("TrimmedMean(beta=0.5)", "beta is 0.5; it must be in [0, 0.5)"),
    (
        "run(local_training=SGD(0.1, momentum=np.array([0.1, 0.2])))",
        "sgd: momentum is array([0.1, 0.2]); it must be one number",
    ),
    (
        "run(local_training=SGD(np.array([0.1, 0.2])))",
        "sgd: learning_rate is array([0.1, 0.2]); it must be one number; ",
    ),
    (
        "run(client_selection=Entropy(epsilon=jnp.array([0.1, 0.2])))",
        "entropy: epsilon is Array([0.1, 0.2], dtype=float32)",
    ),
    ("Krum(f=-1)", "f is -1; it must be a whole number, at least 0"),
    ("Krum(num_selected=0)", "num_selected is 0; it must be a whole number, at least 1"),
    ("Proximal(mu=-1)", "mu is -1; it must be in [0, inf)"),
    ("Bernoulli(p=1.5)", "p is 1.5; it must be in [0, 1]"),
    ("Bernoulli(p='half')", "p is 'half'; it must be a number in [0, 1]"),
    ("Diurnal(period=0)", "period is 0; it must be above 0"),
    ("Deadline(seconds=0)", "seconds is 0; it must be above 0"),
    ("Deadline(seconds=float('nan'))", "seconds is nan; it must be above 0"),
    ("Deadline(late='wait')", "Deadline: late is 'wait'; it must be one of drop, partial"),
    # Models and tasks.
    ("models.MLP(classes=0)", "classes is 0; it must be a whole number, at least 1"),
    ("models.MLP(classes='3')", "classes is '3'; it must be a whole number, at least 1"),
    ("models.MLP(hidden=(0,))", "hidden is (0,); it must be whole numbers, each at least 1"),
    ("models.MLP(hidden=(64, -1))", "hidden is (64, -1); it must be whole numbers, each at least 1"),
    ("models.MLP(hidden=(64.0,))", "hidden is (64.0,); it must be whole numbers, each at least 1"),
    ("models.MLP(hidden=64)", "hidden is 64; it must be whole numbers, each at least 1"),
    ("models.MLP(dropout=1.0)", "dropout is 1.0; it must be in [0, 1)"),
    ("models.MLP(dropout=-0.1)", "dropout is -0.1; it must be in [0, 1)"),
    ("models.MLP(dropout=float('nan'))", "dropout is nan; it must be in [0, 1)"),
    ("models.MLP(dropout='0.5')", "dropout is '0.5'; it must be in [0, 1)"),
    ("models.CNN(channels=(32, 0))", "channels is (32, 0); it must be whole numbers, each at least 1"),
    ("models.CNN(kernel=0)", "kernel is 0; it must be a whole number, at least 1"),
    ("models.CNN(dropout=2)", "dropout is 2; it must be in [0, 1)"),
    ("models.ConvDropout(dropout=(0.25, 1.0))", "dropout is (0.25, 1.0); it must be numbers, each in [0, 1)"),
    ("models.ConvDropout(hidden=0)", "hidden is 0; it must be a whole number, at least 1"),
    ("models.MobileNetV3(momentum=1.0)", "momentum is 1.0; it must be in [0, 1)"),
    ("models.EfficientNet(drop_path=1.0)", "drop_path is 1.0; it must be in [0, 1)"),
    ("models.WideResNet(width=0)", "width is 0; it must be a whole number, at least 1"),
    ("models.LogisticRegression(classes=2.5)", "classes is 2.5; it must be a whole number, at least 1"),
    ("run(task=fs.Task(models.CNN(classes=3)))", "an example has shape (2,); it must be (height, width)"),
    ("fs.Task(models.MLP)", "task: model is MLP, a class; give MLP(...)"),
    ("fs.Task('mlp')", "task: model is 'mlp'; it must be a Flax module"),
    ("fs.Task(lambda x: x)", "it must be a Flax module"),
    ("fs.Task(models.MLP(3), shift=float('nan'))", "task: shift is nan; it must be a finite number"),
    ("fs.Task(models.MLP(3), scale='1')", "task: scale is '1'; it must be a finite number"),
    ("fs.Task(models.MLP(3), loss=3)", "task: loss is 3; it must be a function of outputs and targets"),
    ("fs.Task(models.MLP(3), metrics=max)", "it must be a mapping from names to functions"),
    ("fs.Task(models.MLP(3), metrics={'loss': max})", "a metric is called 'loss'"),
    ("fs.Task(models.MLP(3), metrics={'bytes_up': max})", "a metric is called 'bytes_up'"),
    ("fs.Task(models.MLP(3), metrics={'top.5': max})", "a metric is called 'top.5'; a name has no dot"),
    ("fs.Task(models.MLP(3), metrics={'f1': 3})", "metric 'f1' is 3; it must be a function of outputs and targets"),
    ("fs.Task.on(models.MLP(3), federation)", "the data of a task is Federation("),
    ("fs.Task.on(models.MLP(3), X)", "it must be a Dataset"),
    ("fs.Task.on(blobs, models.MLP(3))", "it must be a Dataset"),
    # Federations and partitions.
    ("fs.Federation(blobs, partition.Iid)", "federation: partition is the class Iid; give a value, as Iid(...)"),
    ("fs.Federation(blobs, 'iid')", "federation: partition is 'iid'; it must be a partition, as partition.Iid(100)"),
    ("fs.Federation(blobs, 10)", "federation: partition is 10; it must be a partition, as partition.Iid(100)"),
    ("fs.Federation(blobs, None)", "federation: partition is None; it must be a partition, as partition.Iid(100)"),
    (
        "fs.Federation(blobs, [0, 1] * 108)",
        "it must be a partition, as partition.Iid(100); the clients of examples are",
    ),
    ("fs.Federation(blobs, np.zeros(216, int))", "it must be a partition, as partition.Iid(100); the clients of"),
    ("fs.Federation(blobs, lambda y, rng: y)", "it must be a partition, as partition.Iid(100)"),
    ("fs.Federation(partition.Iid(N), blobs)", "federation: source is a Iid; it must be a Dataset"),
    ("fs.Federation(fs.Dataset, partition.Iid(N))", "federation: source is Dataset, a class; it must be a Dataset"),
    ("fs.Federation('digits', partition.Iid(N))", "federation: source is a str; it must be a Dataset"),
    ("fs.Federation((X, Y), partition.Iid(N))", "federation: source is a tuple; it must be a Dataset"),
    ("fs.Federation(X, partition.Iid(N))", "federation: source is a ndarray; it must be a Dataset"),
    (
        "fs.Federation(lambda seed: X, partition.Iid(N)).draw(0)",
        "source(0) returned a ndarray; it must return a Dataset",
    ),
    (
        "fs.Federation(blobs, partition.Iid(N), holdout=1.0)",
        "holdout is 1.0; it must be a share of each client's examp",
    ),
    ("fs.Federation(blobs, partition.Iid(N), holdout=-0.1)", "holdout is -0.1; it must be a share"),
    ("fs.Federation(blobs, partition.Iid(N), holdout='0.1')", "holdout is '0.1'; it must be a share"),
    ("fs.Federation(blobs, partition.Iid(N), holdout=float('nan'))", "holdout is nan; it must be a share"),
    ("fs.Federation(blobs, partition.Iid(N), data_seed=-1)", "data_seed is -1; it must be a whole number, 0 or above"),
    ("fs.Federation(blobs, partition.Iid(N), data_seed=1.5)", "data_seed is 1.5; it must be a whole number"),
    (
        "fs.Federation(blobs, partition.Iid(N), devices='fast')",
        "federation: devices is 'fast'; it must be a DeviceProf",
    ),
    (
        "fs.Federation(blobs, partition.Iid(N), devices=laws.Uniform)",
        "federation: devices is the class Uniform; give a",
    ),
    ("fs.Federation(blobs, partition.Iid(N), public=X[:, :1]).draw(0)", "public examples of shape (1,)"),
    ("fs.Federation(blobs, partition.Iid(N), public=X[:0]).draw(0)", "there are 0 public examples"),
    (
        "fs.Federation(blobs, partition.Iid(N), public='more').draw(0)",
        "public is 'more'; it must be examples, or a Dataset",
    ),
    ("fs.Federation(blobs, partition.Natural()).draw(0)", "these examples have no natural owner"),
    (
        "fs.Federation(blobs, partition.Iid(999)).draw(4)",
        "clients is 999, but there are only 216 examples; each needs at least one (data seed 4)",
    ),
    ("fs.Federation(blobs, partition.Iid(0)).draw(0)", "clients is 0; it must be a whole number, at least 1"),
    ("fs.Federation(blobs, partition.Iid(2.5)).draw(0)", "clients is 2.5; it must be a whole number, at least 1"),
    ("fs.Federation(blobs, partition.Iid('8')).draw(0)", "clients is '8'; it must be a whole number, at least 1"),
    (
        "fs.Federation(blobs, partition.Dirichlet(N, alpha=0)).draw(0)",
        "alpha is 0; a Dirichlet concentration is a fini",
    ),
    (
        "fs.Federation(blobs, partition.Dirichlet(N, alpha=float('nan'))).draw(0)",
        "alpha is nan; a Dirichlet concentrat",
    ),
    ("fs.Federation(blobs, partition.Dirichlet(N, alpha=-1)).draw(0)", "alpha is -1; a Dirichlet concentration"),
    ("fs.Federation(blobs, partition.Indices([[3, 1, 1]])).draw(0)", "(place 1)"),
    ("fs.Federation(blobs, partition.Dirichlet(N, min_examples=100)).draw(0)", "lower clients or min_examples"),
    (
        "fs.Federation(blobs, partition.Shards(N, shards_per_client=0)).draw(0)",
        "shards_per_client is 0; it must be",
    ),
    ("fs.Federation(blobs, partition.Shards(200, shards_per_client=2)).draw(0)", "need 400 shards, but there are only"),
    ("fs.Federation(blobs, partition.LabelCount(N, labels=9)).draw(0)", "9"),
    (
        "fs.Federation(blobs, Given(np.zeros(3, int))).draw(0)",
        "client is int64 of shape (3,); needed: one integer for ea",
    ),
    ("fs.Federation(blobs, Given(np.zeros(216))).draw(0)", "client is float64 of shape (216,); needed: one integer"),
    ("fs.Federation(blobs, Given(np.full(216, 9))).draw(0)", "client holds 9 to 9; allowed are 0..7"),
    ("fs.Federation(blobs, Given(np.zeros(216, int))).draw(0)", "7 of 8 clients have no training examples"),
    ("fs.Federation(blobs, Given(None)).draw(0)", "client is object"),
    # Examples and labels.
    ("fs.dataset('mine', X[:, 0], Y)", "examples need at least one axis each: [n, ...], e.g. x[:, None]"),
    ("fs.dataset('mine', X, Y[:5])", "12 examples but 5 labels; they must be equally many"),
    ("fs.dataset('mine', X, Y * 1.0)", "labels are float64, not integers; names or numbers of any kind become 0..C-1"),
    ("fs.dataset('mine', X, np.where(Y > 0, Y, np.nan))", "labels hold"),
    ("fs.dataset('mine', X, X * 1.0, targets='tokens')", "tokens are float32; ids of tokens are whole numbers"),
    ("fs.dataset('mine', X, Y, seed=None)", "give a Federation a function of the seed"),
    ("fs.load('synthetic')", "'synthetic' is drawn anew for each seed: give a Federation the function that draws it"),
    ("fs.Federation(fs.load('iris'), fs.partition.Iid(10), holdout=0.001).draw(0)", "no client keeps an example"),
    (
        "fs.Signals(before=['loss'])",
        "signal 'loss' is of class str; measured before, it must be of class ExampleSignal",
    ),
    ("fs.dataset('mine', X, Y.astype(str))", "not integers; names or numbers of any kind become 0..C-1"),
    ("fs.dataset('mine', X, np.eye(3)[Y])", "one-hot labels become integers with y.argmax(1)"),
    ("fs.dataset('mine', X, Y - 1)", "labels must be in 0..1 (2 classes), but there are also: -1; np.unique"),
    ("fs.dataset('mine', X, Y, classes=2)", "labels must be in 0..1 (2 classes), but there are also: 2; np.unique"),
    ("fs.dataset('mine', X, Y, classes=0)", "classes is 0; at least 1 is needed"),
    ("fs.dataset('mine', X, Y, classes='3')", "classes is '3'"),
    ("fs.dataset('mine', X, np.array([0, 10**6] * 6))", "only 2 of these 1000001 classes have an example; np.unique"),
    ("fs.dataset('mine', X, np.array([0, 10**10] * 6))", "hold integers beyond 32 bits"),
    ("fs.dataset('mine', X * np.nan, Y)", "12 of 12 examples hold NaN or infinity (the first is number 0)"),
    ("fs.dataset('mine', X * np.inf, Y)", "12 of 12 examples hold NaN or infinity (the first is number 0)"),
    ("fs.dataset('mine', X.astype(str), Y)", "they must be numbers (uint8, integers, floats)"),
    ("fs.dataset('mine', X.astype(complex), Y)", "they must be numbers (uint8, integers, floats)"),
    ("fs.dataset('mine', [[1, 2], [3]], [0, 1])", "all examples need the same shape"),
    ("fs.dataset('mine', X[:0], Y[:0])", "training set is empty; at least one example is needed"),
    ("fs.dataset('mine', X, Y, test=1.5)", "is 1.5; it is (examples, labels) or a share of the examples in [0, 1)"),
    ("fs.dataset('mine', X, Y, test='0.2')", "is '0.2'; it is (examples, labels) or a share of the examples"),
    ("fs.dataset('mine', X, Y, test=0.01)", "each side needs at least one"),
    ("fs.dataset('mine', X, Y, test=(X, Y, Y))", "(examples, labels)"),
    ("fs.dataset('mine', X, Y, test=X)", "(examples, labels)"),
    (
        "fs.dataset('mine', X, Y, test=(X[:, :1], Y))",
        "test examples have shape (1,), training examples (2,); they must",
    ),
    ("fs.dataset('mine', X, Y, test=(X.astype(int), Y))", "test examples are int32, training examples float32; they"),
    ("fs.dataset('mine', X, Y, owner=Y[:3])", "owner has shape (3,); one owner an example is needed"),
    ("fs.dataset('mine', X, Y, owner=np.where(Y == 1, -1, Y))", "owner 1 is -1, which stands for nobody in a"),
    ("fs.dataset('mine', X, Y, owner=[0, 1, -1] * 4)", "owner 2 is -1, which stands for nobody in a"),
    ("fs.dataset('mine', X, Y, owner=np.array([0, 'b', -1] * 4, object))", "owner holds values of several types"),
    ("fs.dataset('mine', np.full((6, 2), 1e300), Y[:6])", "6 of 6 examples hold numbers beyond those of float32"),
    ("fs.dataset('mine', Y[:, None] - 1, Y[:, None] - 1, targets='tokens')", "whole numbers from 0, but there are"),
    (
        "fs.Federation(blobs, partition.Function(lambda y, rng: [[0], [1, 2]])).draw(0)",
        "it must return a whole number for each of the 216 examples, its client",
    ),
    ("fs.save_variables('x.npz', None)", "variables is None; it must be a dictionary with 'params'"),
    ("fs.save_variables('x.npz', {'a': 3})", "variables is {'a': 3}; it must be a dictionary with 'params'"),
    ("fs.load_variables(__file__)", "cannot be read (it is not an archive of arrays)"),
    ("SGD(schedule=lambda t: t)", "it must be a schedule, as Cosine(), or a Pytree with a method"),
    ("SGD(augment='crop_flip')", "augment is 'crop_flip'; it must be CropFlip(), None, or a Pytree"),
    ("run(local_training=NoOptimiser())", "NoOptimiser.build_optimizer returned None; it must return an optimiser"),
    ("run(local_training=HalfGradient())", "it must return (gradient, (sums, statistics))"),
    ("fs.tune(None, make, federation, trials=2)", "study is None; it must be a study of optuna"),
    (
        "fs.tune(SimpleNamespace(directions=[1]), make, federation, trials=2, objective='accuracy')",
        "objective is 'accuracy'; it must be a function of a trial's history that returns one number",
    ),
    ("fs.dataset(X, Y, 'mine')", "it must be text, as in dataset('mine', x, y)"),
    (
        "fs.load(Path('x.npz'))",
        "the name of a dataset is PosixPath('x.npz') (PosixPath); it must be text; an .npz file is",
    ),
    ("fs.load(3)", "the name of a dataset is 3 (int); it must be text"),
    ("fs.load(None)", "the name of a dataset is None (NoneType); it must be text"),
    ("fs.load(X)", "it must be text; arrays become one by dataset(name, x, y)"),
    ("fs.load('digit')", "did you mean 'digits'?"),
    ("fs.load('npz:')", "unknown dataset 'npz:'"),
    ("fs.load('npz:missing.npz')", "no file missing.npz"),
    ("fs.load('iris', test=2)", "is 2; it is (examples, labels) or a share of the examples in [0, 1)"),
    ("fs.load('iris', num_examples=0)", "num_examples is 0; there are 120 training examples, and at least 1 is needed"),
    ("fs.load('iris', num_examples=10**6)", "num_examples is 1000000; there are 120 training examples"),
    ("fs.load('iris', num_examples=2.5)", "num_examples is 2.5; there are 120 training examples"),
    ("fs.load('iris', seed=-1)", "iris: seed is -1; it must be a whole number from 0 to 2^32 - 1"),
    # What a user writes himself.
    ("Signals(before=[signals.Loss])", "signal 'Loss': Loss is a class; give Loss()"),
    (
        "Signals(before=[3])",
        "signal 3 is of class int; measured before, it must be of class ExampleSignal or ClientSignal",
    ),
    ("Signals(before=signals.Loss())", "before is Loss(); it must be a list of signals, or a mapping from names to"),
    ("Signals(before=[signals.Loss()], after={'loss': signals.UpdateNorm()})", "two signals are called 'loss'"),
    ("Signals(upfront=[signals.Loss()])", "measured upfront, it must be of class UpfrontSignal"),
    ("subclass(fs.ClientSelector)()", "abstract"),
    ("subclass(fs.DataSelector)()", "abstract"),
    (
        "subclass(fs.Task, loss=lambda self, outputs, targets: 0)",
        "defines loss, but loss is a f",
    ),
    ("subclass(fs.Task, metrics={})", "defines metrics, but metrics is a field of Task"),
    ("subclass(SGD, momentum=property(lambda self: 0.9))", "defines momentum, but momentum is a field of SGD"),
    ("subclass(Entropy, epsilon=0.5)", "defines epsilon, but epsilon is a field of Entropy"),
    ("subclass(Pytree, __post_init__=lambda self: None)", "what it checks belongs in __check_init__"),
]

WARNED: list[tuple[str, str]] = [
    (
        "fs.Task(Trained())",
        "Trained.__call__ takes training_mode, which is False in training, too; of its arguments, only",
    ),
    (
        "fs.Task(CamelCase())",
        "CamelCase.__call__ takes isTraining, which is False in training, too; of its arguments, only",
    ),
    (
        "run_check(client_selection=Misspelt())",
        "Misspelt.obsrve overrides nothing; did you mean Misspelt.observe?",
    ),
    (
        "run_check(client_selection=Flagged())",
        "Flagged.uses_round overrides nothing; did you mean Flagged.uses_rounds?",
    ),
    (
        "fs.dataset('mine', X, Y, test=(X, Y + 1))",
        "only test or validation examples have labels 3, so that no client can",
    ),
    ("fs.dataset('mine', X, Y, test=(X, Y + 1), classes=4)", "only test or validation examples have labels 3"),
    ("fs.dataset('mine', X, Y, validation=(X, Y + 1))", "only test or validation examples have labels 3"),
    ("fs.dataset('mine', X, 2 * Y)", "2 of 5 classes have no example (1, 3); np.unique(y, return_inverse=True)[1]"),
    ("fs.dataset('mine', X, 3 * Y)", "4 of 7 classes have no example (1, 2, 4, 5); np.unique"),
    (
        "fs.Task.on(models.MLP(1), fs.dataset('mine', X, 0 * Y))",
        "all training examples have label 0; there is nothing to tell apart",
    ),
    (
        "fs.Task.on(models.MLP(3), fs.dataset('mine', X, 0 * Y, classes=3))",
        "all training examples have label 0; there is nothing to tell apart",
    ),
    (
        "fs.dataset('mine', np.zeros((12, 3, 32, 32), np.uint8), Y)",
        "looks like channels first; here the last axis holds",
    ),
    ("fs.dataset('mine', np.zeros((12, 1, 28, 28), np.float32), Y)", "np.moveaxis(x, 1, -1) moves them there"),
    (
        "fs.dataset('mine', np.zeros((12, 28, 28), np.float32), Y)",
        "if they are images of one channel, x[..., None] gives",
    ),
    (
        "fs.Task.on(models.MLP(3), fs.dataset('tokens', 900 * (X > 0).astype(int), Y))",
        "will be normalised as measurement",
    ),
]

UNREMARKED: list[str] = [
    "run_check(client_selection=Helped())",
    "fs.dataset('mine', X, Y, classes=3, test=(X[:3], Y[:3]))",
    "fs.dataset('mine', X, 2 * Y, classes=9)",
    "fs.dataset('mine', np.zeros((12, 32, 32, 3), np.uint8), Y)",
    "fs.dataset('mine', np.zeros((12, 3, 3, 3), np.uint8), Y)",
    "fs.Task.on(models.MLP(3), fs.dataset('images', np.zeros((12, 4, 4), np.uint8), Y))",
    "run_check(cohort_size=np.int64(3), rounds=np.int32(2), evaluate_every=np.int64(1))",
    "run_check(cohort_size=jnp.int32(3), rounds=jnp.int32(2), evaluate_last=jnp.int32(1))",
    "run_check(cohort_size=np.float32(0.5))",
    "SGD(jnp.float32(0.1), batch_size=jnp.int32(4), momentum=np.float64(0.9), epochs=np.int64(2)).plan(12, 12, 0, 9)",
    "hash(PowerOfChoice(d=jnp.int32(4)).d)",
    "models.MLP(classes=np.int64(3), hidden=[jnp.int32(4)], dropout=np.float32(0.5))",
    "fs.Layout(clients=np.int64(2), examples=jnp.int32(9))",
    "Execution(chunk=np.int64(2), memory=1e9, callbacks=[print, EarlyStopping()])",
]
"""What is meant, and must be neither refused nor remarked on."""


def no_cohort(self, key, state, ctx):
    return None


def clients(count, dtype=jnp.int32):
    """A selector's method: a cohort whose clients are of another shape or type."""
    return lambda self, key, state, ctx: uniform_m(key, ctx.available, ctx.m).replace(
        client=jnp.arange(count).astype(dtype)
    )


def field(name, value):
    """A selector's method: a cohort with another value in one field."""
    return lambda self, key, state, ctx: uniform_m(key, ctx.available, ctx.m).replace(**{name: value})


def give(value):
    """A method that gives the same whatever it is asked."""
    return lambda self, *args, **kwargs: value


ANY = {"select": lambda self, key, state, ctx, **signals: uniform_m(key, ctx.available, ctx.m)}
ZERO = {"init": lambda self, key, ctx, host: jnp.zeros(ctx.num_clients)}
ALL = {"select": lambda self, key, state, valid, **signals: valid}
PLAIN = {"correct": lambda self, own, gradient, variables, received: gradient}
EQUAL = {"weights": lambda self, cohort, num_examples, plan: cohort.weight / 3}

BROKEN: list[tuple[str, type, dict, str]] = [
    ("select: nothing", fs.ClientSelector, {"select": no_cohort}, "Mine.select returned None; it must return a Cohort"),
    (
        "select: an array",
        fs.ClientSelector,
        {"select": give(jnp.arange(3))},
        "Mine.select returned int32 of shape (3,); it",
    ),
    (
        "init: forgets its return",
        fs.ClientSelector,
        {**ANY, "init": lambda self, key, ctx, host: None},
        "Mine.init returned None; it must return the state, () if there is none",
    ),
    (
        "init: integers that 32 bits cut",
        fs.ClientSelector,
        {**ANY, "init": lambda self, key, ctx, host: np.arange(N) * 2**31},
        "Mine.init returned a state in which it has integers beyond 32 bits, from 0 to 15032385536",
    ),
    (
        "init of a data selection: integers that 32 bits cut",
        fs.DataSelector,
        {
            "init": lambda self, clients, longest: np.full(clients, -(2**40)),
            "select": lambda self, key, state, valid: valid,
        },
        "Mine.init returned a state in which it has integers beyond 32 bits, from -1099511627776 to -1099511627776",
    ),
    (
        "upfront: less than nothing",
        fs.ClientSelector,
        {**ANY, "upfront": lambda self, ctx, host: fs.protocols.Upfront(0.0, -1.0, 0.0)},
        "Mine.upfront: down is -1.0; it must be in [0, inf)",
    ),
    (
        "count_up: less than nothing",
        fs.DataSelector,
        {"select": lambda self, key, state, valid: valid, "count_up": lambda self, classes: -100},
        "Mine.count_up(3) is -100; it must be in [0, inf)",
    ),
    (
        "cost of a signal: a number",
        fs.ClientSelector,
        {
            "signals": lambda self: fs.Signals(before=[subclass(Broken, cost=3)()]),
            "select": lambda self, key, state, ctx, **before: uniform_m(key, ctx.available, ctx.m),
        },
        "Mine.cost is 3 (int); it must be a fedjax_sel.protocols.Cost",
    ),
    ("select: a tuple", fs.ClientSelector, {"select": give((1, 2, 3))}, "Mine.select returned a tuple; it must return"),
    ("select: a class", fs.ClientSelector, {"select": give(Cohort)}, "it must return a Cohort, as `top_m` does"),
    (
        "select: too few",
        fs.ClientSelector,
        {"select": clients(2)},
        "client is int32 of shape (2,); it must be integer o",
    ),
    (
        "select: too many",
        fs.ClientSelector,
        {"select": clients(8)},
        "client is int32 of shape (8,); it must be integer",
    ),
    (
        "select: floats",
        fs.ClientSelector,
        {"select": clients(3, jnp.float32)},
        "client is float32 of shape (3,); it mu",
    ),
    (
        "select: a list",
        fs.ClientSelector,
        {"select": field("client", [0, 1, 2])},
        "whose client is [0, 1, 2] (list); it",
    ),
    (
        "select: mask of integers",
        fs.ClientSelector,
        {"select": field("mask", jnp.ones(3, int))},
        "mask is int32 of sha",
    ),
    (
        "select: one mask",
        fs.ClientSelector,
        {"select": field("mask", jnp.ones((), bool))},
        "mask is bool of shape (); ",
    ),
    (
        "select: no mask",
        fs.ClientSelector,
        {"select": field("mask", None)},
        "mask is None; it must be bool of shape (3,",
    ),
    (
        "select: whole weights",
        fs.ClientSelector,
        {"select": field("weight", jnp.ones(3, int))},
        "weight is int32 of sh",
    ),
    (
        "select: one weight",
        fs.ClientSelector,
        {"select": field("weight", 1.0)},
        "weight is 1.0 (float); it must be floa",
    ),
    (
        "select: without state",
        fs.ClientSelector,
        {"select": lambda self, key, ctx: None},
        "it must take (key, state, ct",
    ),
    (
        "accept: nothing",
        fs.ClientSelector,
        {**ANY, "accept": give(None)},
        "Mine.accept returned None; it must return a",
    ),
    (
        "accept: a mask",
        fs.ClientSelector,
        {**ANY, "accept": give(jnp.ones(3, bool))},
        "Mine.accept returned bool of shape (3,)",
    ),
    (
        "accept: fewer",
        fs.ClientSelector,
        {**ANY, "accept": lambda self, key, state, ctx, cohort: jax.tree.map(lambda a: jnp.atleast_1d(a)[:1], cohort)},
        "Mine.accept returned a cohort whose client is int32 of shape (1,)",
    ),
    (
        "candidates: a mask",
        fs.ClientSelector,
        {**ANY, "candidates": give(jnp.ones(8, bool))},
        "candidates returned bool",
    ),
    (
        "candidates: a list",
        fs.ClientSelector,
        {**ANY, "candidates": give([0, 1])},
        "candidates returned [0, 1] (list);",
    ),
    (
        "candidates: a number",
        fs.ClientSelector,
        {**ANY, "candidates": give(3)},
        "candidates returned 3 (int); it must be",
    ),
    (
        "candidates: nobody",
        fs.ClientSelector,
        {**ANY, "candidates": give(jnp.zeros(0, int))},
        "int32 of shape (0,); it",
    ),
    ("observe: nothing", fs.ClientSelector, {**ANY, **ZERO, "observe": give(None)}, "of another structure than `init`"),
    (
        "observe: whole",
        fs.ClientSelector,
        {**ANY, **ZERO, "observe": give(jnp.zeros(8, int))},
        "in which it is int32 of",
    ),
    (
        "observe: longer",
        fs.ClientSelector,
        {**ANY, **ZERO, "observe": give(jnp.zeros(9))},
        "`init` made it float32 of s",
    ),
    ("observe: more", fs.ClientSelector, {**ANY, **ZERO, "observe": give((jnp.zeros(8),) * 2)}, "of another structure"),
    ("observe: text", fs.ClientSelector, {**ANY, **ZERO, "observe": give("state")}, "in which it is 'state' (str)"),
    (
        "observe: arguments",
        fs.ClientSelector,
        {**ANY, "observe": lambda self, state: state},
        "(key, state, ctx, cohort)",
    ),
    (
        "init: text",
        fs.ClientSelector,
        {**ANY, "init": give("state")},
        "Mine.init returned a state in which it is 'state'",
    ),
    (
        "init: an object",
        fs.ClientSelector,
        {**ANY, "init": give({"a": object()})},
        "a state is a pytree of arrays: what",
    ),
    ("init: arguments", fs.ClientSelector, {**ANY, "init": lambda self: ()}, "it must take (key, ctx, host)"),
    (
        "signals: nothing",
        fs.ClientSelector,
        {**ANY, "signals": give(None)},
        "Mine.signals returned None; it must return ",
    ),
    (
        "signals: a list",
        fs.ClientSelector,
        {**ANY, "signals": give([fs.signals.Loss()])},
        "Mine.signals returned a list",
    ),
    (
        "signals: a dict",
        fs.ClientSelector,
        {**ANY, "signals": give({"before": []})},
        "Mine.signals returned a dict; it",
    ),
    (
        "signals: not taken",
        fs.ClientSelector,
        {"select": no_cohort, "signals": give(fs.Signals(before=[fs.signals.Loss()]))},
        "it must take (key, state, ctx, *, loss)",
    ),
    (
        "asks: a number",
        fs.ClientSelector,
        {**ANY, "signals": give(fs.Signals([fs.signals.Loss()])), "asks": give(1.0)},
        "a",
    ),
    ("data: nothing", fs.DataSelector, {"select": give(None)}, "Mine.select returned None; it must be one weight"),
    (
        "data: places",
        fs.DataSelector,
        {"select": give(jnp.arange(3))},
        "Mine.select returned int32 of shape (3,); it must",
    ),
    (
        "data: one for all",
        fs.DataSelector,
        {"select": give(True)},
        "Mine.select returned True (bool); it must be one weig",
    ),
    (
        "data: state's length",
        fs.DataSelector,
        {**ALL, "init": give(jnp.zeros(3))},
        "its first axis must be N = 8, one en",
    ),
    (
        "data: state of text",
        fs.DataSelector,
        {**ALL, "init": give("state")},
        "Mine.init returned a state in which it is",
    ),
    (
        "data: state's type",
        fs.DataSelector,
        {**ALL, "init": lambda self, n, longest: jnp.zeros(n), "observe": give(jnp.int32(3))},
        "Mine.observe returned a state in which it is int32 of shape (); `init` made it float32 of shape ()",
    ),
    (
        "data: signals",
        fs.DataSelector,
        {**ALL, "signals": give([fs.signals.Loss()])},
        "it must be a mapping from names to",
    ),
    ("data: not taken", fs.DataSelector, {"select": lambda self, key: 0}, "it must take (key, state, valid)"),
    (
        "correct: nothing",
        fs.Correction,
        {"correct": give(None)},
        "Mine.correct returned a gradient of another structure",
    ),
    (
        "correct: a number",
        fs.Correction,
        {"correct": give(0.0)},
        "Mine.correct returned a gradient of another structure",
    ),
    (
        "correct: whole",
        fs.Correction,
        {"correct": lambda self, own, g, w, received: jax.tree.map(lambda a: a.astype(int), g)},
        "Mine.correct returned a gradient in which",
    ),
    (
        "merge: structure",
        fs.Correction,
        {**PLAIN, "init": give(jnp.zeros(3)), "merge": give(())},
        "Mine.merge returned a state of another structure than `init`",
    ),
    (
        "merge: type",
        fs.Correction,
        {**PLAIN, "init": give(jnp.zeros(3)), "merge": give(jnp.zeros(3, int))},
        "Mine.merge returned a state in which it is int32 of shape (3,); `init` made it float32",
    ),
    (
        "weights: nothing",
        fs.Aggregator,
        {"weights": give(None)},
        "Mine.weights returned None; it must be floats of sha",
    ),
    (
        "weights: one",
        fs.Aggregator,
        {"weights": give(jnp.ones(()))},
        "Mine.weights returned float32 of shape (); it must",
    ),
    (
        "weights: whole",
        fs.Aggregator,
        {"weights": give(jnp.ones(3, int))},
        "Mine.weights returned int32 of shape (3,); i",
    ),
    (
        "weights: a list",
        fs.Aggregator,
        {"weights": give([1.0, 1.0, 1.0])},
        "Mine.weights returned [1.0, 1.0, 1.0] (list",
    ),
    (
        "step: the model alone",
        fs.Aggregator,
        {**EQUAL, "step": lambda self, state, variables, delta: variables},
        "Mine.step returned a dict; it must return the new model and the state",
    ),
    (
        "step: a change instead of a model",
        fs.Aggregator,
        {**EQUAL, "step": lambda self, state, variables, delta: (jax.tree.leaves(variables), state)},
        "Mine.step returned a model of another structure than the global model",
    ),
    (
        "step: state",
        fs.Aggregator,
        {**EQUAL, "init": give(jnp.zeros(())), "step": lambda self, state, variables, delta: (variables, 0)},
        "Mine.step returned a state in which it is 0 (int); `init` made it float32 of shape ()",
    ),
    (
        "combine: another model",
        fs.Aggregator,
        {**EQUAL, "stacked": True, "combine": lambda self, deltas, weights: weights},
        "Mine.combine returned a model of another structure than the global model",
    ),
    (
        "plan: nothing",
        fs.LocalTrainer,
        {"plan": give(None), "train": give(None)},
        "Mine.plan returned None; it must ret",
    ),
    (
        "train: variables",
        SGD,
        {"train": lambda self, key, task, params, *args, **kwargs: params},
        "Mine.train returned a dict; it must return an Update",
    ),
    (
        "available: nothing",
        Availability,
        {"available": give(None)},
        "Mine.available returned None; it must be true or",
    ),
    (
        "available: a list",
        Availability,
        {"available": give([True] * 8)},
        "Mine.available returned [True, True, True, ",
    ),
    (
        "available: chances",
        Availability,
        {"available": give(jnp.ones(8))},
        "returned float32 of shape (8,); it must be",
    ),
    (
        "available: one",
        Availability,
        {"available": give(jnp.ones((), bool))},
        "Mine.available returned bool of shape ",
    ),
]
"""What a user's strategy does wrong; of which kind it is; its methods; the words of the error."""


def chosen(*numbers, mask=(True, True, True), weight=(1.0, 1.0, 1.0)):
    """The methods of a selector of always the same clients."""
    cohort = Cohort(jnp.array(numbers), jnp.array(mask), jnp.array(weight))
    return {"select": give(cohort)}


def ranked(score):
    """The methods of a selector that ranks clients by always the same scores."""
    return {"select": lambda self, key, state, ctx: top_m(key, jnp.asarray(score), ctx.available, ctx.m)}


class Broken(fs.ExampleSignal):
    """NaN for examples of class 0."""

    name = "broken"

    def measure(self, logits, y):
        return jnp.where(y == 0, jnp.nan, logits.mean(-1))


NAN = float("nan")
SOME_NAN = [NAN, NAN, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
COUNTED: list[tuple[str, type, dict, str]] = [
    ("a client that does not exist", fs.ClientSelector, chosen(0, 1, 8), "Mine: 1 selected clients that do not exist"),
    ("a negative client", fs.ClientSelector, chosen(0, -2, -7), "Mine: 2 selected clients that do not exist"),
    (
        "a client twice",
        fs.ClientSelector,
        chosen(4, 1, 4),
        "Mine: 1 clients selected twice in a round, without `replace",
    ),
    ("a client three times", fs.ClientSelector, chosen(4, 4, 4), "Mine: 2 clients selected twice in a round"),
    (
        "a weight below 0",
        fs.ClientSelector,
        chosen(0, 1, 2, weight=(1.0, -1.0, 1.0)),
        "Mine: 1 weights from `select` th",
    ),
    (
        "a weight that is NaN",
        fs.ClientSelector,
        chosen(0, 1, 2, weight=(1.0, NAN, 1.0)),
        "Mine: 1 weights from `select`",
    ),
    ("scores that are NaN", fs.ClientSelector, ranked([NAN] * 8), "Mine: 8 scores that are NaN, by which clients were"),
    ("some scores NaN", fs.ClientSelector, ranked(SOME_NAN), "Mine: 2 scores that are NaN"),
    (
        "chances that are NaN",
        fs.ClientSelector,
        {"select": lambda self, key, state, ctx: gumbel_m(key, jnp.array(SOME_NAN), ctx.available, ctx.m)},
        "Mine: 2 scores that are NaN",
    ),
    (
        "candidates that do not exist",
        fs.ClientSelector,
        {**ANY, "signals": give(fs.Signals([fs.signals.Loss()])), "candidates": give(jnp.array([0, 1, 8, 9]))},
        "Mine: 2 candidates that do not exist, from `candidates`",
    ),
    (
        "a signal that is NaN",
        fs.ClientSelector,
        {**ANY, "signals": give(fs.Signals(before=[Broken()]))},
        "Mine: 8 values of the signal 'broken' that are not finite",
    ),
    (
        "somebody accepted who did not train",
        fs.ClientSelector,
        {
            **chosen(0, 1, -1, mask=(True, True, False), weight=(1.0, 1.0, 0.0)),
            "accept": lambda self, key, state, ctx, cohort: cohort.replace(mask=jnp.ones(3, bool)),
        },
        "Mine: 1 members from `accept` that did not return an update",
    ),
    (
        "accepted with a weight below 0",
        fs.ClientSelector,
        {**ANY, "accept": lambda self, key, state, ctx, cohort: cohort.replace(weight=-cohort.weight)},
        "Mine: 3 weights from `accept` that are negative or not finite",
    ),
    (
        "examples weighed below 0",
        fs.DataSelector,
        {"select": lambda self, key, state, valid: -1.0 * valid},
        "Mine: 81 wei",
    ),
    (
        "examples weighed",
        fs.DataSelector,
        {"select": lambda self, key, state, valid: 0.5 * valid},
        "neither 0 nor 1 with",
    ),
    (
        "updates weighed below 0",
        fs.Aggregator,
        {"weights": lambda self, c, n, p: -c.weight},
        "Mine: 3 weights of updates",
    ),
]
"""As `BROKEN`; the numbers are of one round."""

DIGITS = "run digits partition.clients=20 cohort_size=3 rounds=2 --seeds 1 "
COMMANDS: list[tuple[str, str]] = [
    (
        "run digits devices.compute=1e9",
        "devices has compute, but no name that says which one it is, as in devices=NAME",
    ),
    ("run digits devices=lognormal devices.compute=-1", "law LogNormal: compute is -1.0 FLOP/s; it must be finite and"),
    ("run digits selector=power_of_choice selector.d=1", "see `fedjax-sel explain power_of_choice`"),
    ("run digits task.metrics=[acc]", "did you mean 'accuracy'?"),
    ("run digits layout=scan layout.clients=2", "layout is 'scan', and layout.clients is given, too; give a name or"),
    ("run digits selector=../mine.py:Mine", "/mine.py (../mine.py, seen from the working directory)"),
    ("run digit", "unknown preset 'digit'; did you mean 'digits'"),
    ("run missing.yaml", "no file missing.yaml; presets are"),
    ("run", "Missing argument"),
    ("rn digits", "No such command"),
    ("run digits --round 3", "No such option"),
    ("run digits --seeds many", "Invalid value for '--seeds': Input should be a valid integer"),
    ("run digits --seeds 0", f"seeds are 0; {SEEDS}"),
    ("run digits --seeds -1", f"seeds are -1; {SEEDS}"),
    ("run digits seeds=[1,1]", f"seeds are [1, 1]; {SEEDS}"),
    ("run digits seeds=1.5", "seeds is 1.5; it must be a whole number"),
    ("run digits --seeds 2 seeds=3", "both give seeds; give it once"),
    ("run digits --layout pmap", "unknown layout 'pmap'"),
    ("run digits --mesh 2", "--mesh is '2'; it must be of the form seeds=2,clients=4"),
    ("run digits --mesh seeds=0,clients=1", "mesh.seeds is 0; it must be at least 1"),
    ("run digits mesh.clients=0", "mesh.clients is 0; it must be at least 1"),
    ("run digits --memory much", "Invalid value for '--memory': Input should be a valid number"),
    ("run digits --memory -1", "Invalid value for '--memory': Input should be greater than"),
    ("run digits lr", "'lr' is not of the form key=value"),
    ("run digits =3", "'=3' is not of the form key=value"),
    ("run digits lr=[", "the value cannot be read as YAML"),
    ("run digits lr=-1", "learning_rate is -1.0; it must be in [0, "),
    ("run digits lr=fast", "local_training.learning_rate is 'fast'; it must be a finite number"),
    ("run digits lr=nan", "local_training.learning_rate is 'nan'; it must be a finite number"),
    ("run digits lr=.nan", "local_training.learning_rate is nan; it must be a finite number"),
    ("run digits lr=0.1 local_training.learning_rate=0.2", "both give local_training.learning_rate; give it once"),
    ("run digits local_training.momentum=1", "momentum is 1.0; it must be in [0, 1)"),
    ("run digits local_training.epochs=0", "epochs is 0; it must be a whole number, at least 1"),
    ("run digits local_training.epochs=1 local_training.steps=2", "epochs is 1 and steps is 2; give one of them"),
    ("run digits local_training.batch_size=2.5", "local_training.batch_size is 2.5; it must be a whole number"),
    ("run digits local_training=sdg", "did you mean 'sgd'"),
    ("run digits local_training.momentun=0.9", "did you mean 'momentum'"),
    ("run digits selector=entropi", "did you mean 'entropy'"),
    ("run digits selector=3", "client_selection is 3; it must be a name, or a mapping with a name and parameters"),
    ("run digits selector=[uniform]", "client_selection is ['uniform']; it must be a name, or a mapping"),
    ("run digits selector.name=3", "client_selection is 3; it must be a name, or a mapping with a name and parameters"),
    ("run digits selector=entropy selector.epsilon=2", "epsilon is 2.0; it must be in [0, 1]"),
    ("run digits selector=power_of_choice selector.d=0", "d is 0; it must be a whole number, at least 1"),
    ("run digits selector=uniform selector.d=3", "uniform has no parameters, but 'd' is given"),
    ("run digits samples=random_subset samples.fraction=0", "fraction is 0.0; it must be in (0, 1]"),
    ("run digits correction=scafold", "did you mean 'scaffold'"),
    ("run digits aggregator=avg", "unknown aggregation 'avg'"),
    ("run digits aggregator=mean aggregator.weighting=sise", "did you mean 'size'"),
    ("run digits m=0", f"cohort_size is 0, but there are N = 100 clients; {M}"),
    ("run digits m=101", f"cohort_size is 101, but there are N = 100 clients; {M}"),
    ("run digits m=1.5", f"cohort_size is 1.5, but there are N = 100 clients; {M}"),
    ("run digits m=few", "cohort_size is 'few'; it must be a finite number"),
    ("run digits rounds=0", f"rounds is 0; {ROUNDS}"),
    ("run digits rounds=1e3", "rounds is '1e3'; it must be a whole number"),
    ("run digits rounds=true", "rounds is True; it must be a whole number"),
    ("run digits evaluate_every=0", f"evaluate_every is 0; {ROUNDS}"),
    ("run digits chunk=0", "chunk is 0; it must be at least 1 round"),
    ("run digits holdout=1", "holdout is 1.0; it must be a share of each client's examples, in [0, 1)"),
    ("run digits data_seed=-1", "data_seed is -1; it must be at least 0, or null"),
    ("run digits partition=idd", "did you mean 'iid'"),
    ("run digits partition=natural", "these examples have no natural owner"),
    ("run digits partition.clients=0", "clients is 0; it must be a whole number, at least 1"),
    ("run digits partition.clients=99999", "clients is 99999, but there are only"),
    ("run digits partition.alpha=0", "alpha is 0.0; a Dirichlet concentration is a finite number above 0"),
    ("run digits data=digit", "did you mean 'digits'"),
    ("run digits data=mine.npz", "unknown data 'mine.npz'; a file is named 'npz:mine.npz'"),
    ("run digits data=npz:PATH", "put a file or a dataset in its place, as in 'tfds:fashion_mnist'"),
    ("run digits data=npz:missing.npz", "no file missing.npz"),
    ("run digits data=csv:mine.csv", "data csv:mine.csv: tables are read in Python; write a function that returns"),
    (
        "run digits data=uacs data.setting=9",
        "uacs: setting is 9; it must be 1, 2 or 3, the paper's experiments; see docs/how-to/data.md",
    ),
    ("run digits data=3", "data is 3; it must be a name, or a mapping with a name and parameters"),
    ("run digits data=null", "data is missing; name a source, as in `data: digits`"),
    ("run digits data.test=0", "has no test examples to evaluate on; load it with a share, as in data.test: 0.2"),
    ("run digits data.test=2", "is 2.0; it is (examples, labels) or a share of the examples in [0, 1)"),
    ("run digits data.num_examples=0", "num_examples is 0; there are"),
    ("run digits public=uacs", "public.name is 'uacs', which is drawn from the seed of a run"),
    ("run digits model=mpl", "did you mean 'mlp'"),
    ("run digits model=mlp model.hidden=[0]", "hidden is (0,); it must be whole numbers, each at least 1"),
    ("run digits model=mlp model.hidden=64", "model.hidden is 64; it must be a list, each a whole number"),
    ("run digits model=mlp model.dropout=1", "dropout is 1.0; it must be in [0, 1)"),
    ("run digits model=mlp model.frozen=[Dense_9]", "Dense_9"),
    ("run digits model=mlp model.pretrained=missing.npz", "missing.npz"),
    ("run digits model=mlp model.classes=3", "unknown parameter of model mlp: 'classes'"),
    ("run digits model=cnn", "an example has shape (64,); it must be (height, width)"),
    (
        "run digits model=transformer",
        "digits: Transformer takes token ids, which must not be normalised; give normalise",
    ),
    ("run iris model=transformer model.normalise=false", "takes token ids, but the examples are not whole numbers"),
    (
        "run digits model=transformer model.normalise=false model.vocabulary=9",
        "takes token ids from 0 to 8, but there are some from 0 to 16",
    ),
    ("run digits rounds=99999999999", "rounds is 99999999999; it must be a whole number, at least 1 and below 2^31"),
    (
        "run digits local_training.epochs=99999999999",
        "epochs is 99999999999; it must be a whole number, at least 1, and",
    ),
    ("run digits --seeds 4294967297", "seeds are 4294967297; a count of them is at most 1,048,576"),
    ("run digits task.loss=focl", "did you mean 'focal'"),
    ("run digits task.loss=huber", "the task's loss is Huber, which is of continuous, but the targets are classes"),
    ("run digits task.metrics=[acu]", "did you mean 'auc'"),
    ("run digits task.metrics=3", "task.metrics is 3; it must be a list of names"),
    ("run digits selector=oort", "oort selects by what devices can do, but the clients have none"),
    ("run digits model=nowhere:Model", "model: there is no module 'nowhere'"),
    ("run digits devices=fast", "unknown law of devices 'fast'"),
    ("run digits devices=uniform devices.low=-1", "law Uniform: low is -1.0; it is a share of the largest value"),
    ("run digits devices=csv devices.path=missing.csv", "missing.csv"),
    ("run digits availability=bernouli", "did you mean 'bernoulli'"),
    ("run digits availability=bernoulli availability.p=2", "p is 2.0; it must be in [0, 1]"),
    ("run digits deadline=60", "deadline is 60; it must be a mapping, as in {seconds: 60, late: drop}"),
    (
        "run digits deadline.seconds=60",
        "the deadline is 60.0 seconds, but the clients have no devices, so nobody is late",
    ),
    ("run digits devices=uniform deadline.late=drop", "deadline.late is 'drop', but deadline.seconds is not given"),
    ("run digits --out file.txt/here", "cannot be written"),
    ("leaderboard --only uniform,oort", "unknown federation or selector 'uniform,oort'; did you mean"),
    ("list selctors", "unknown kind or component 'selctors'; did you mean 'selectors'?"),
    (
        "run digits data.test=0",
        "has no test examples to evaluate on; load it with a share, as in data.test: 0.2; see docs/how-to/data.md",
    ),
    ("run digits devices=uniform deadline.seconds=0", "seconds is 0.0; it must be above 0"),
    ("run digits devices=uniform deadline.late=wait", "late is 'wait'; it must be one of drop, partial"),
    ("run digits callbacks=tabel", "did you mean 'table'"),
    ("run digits callbacks=3", "callbacks is 3; it must be a name, a list of names, or a mapping"),
    (
        "run digits callbacks.early_stopping.patience=0",
        "early_stopping: patience is 0; it must be a whole number, at least 1",
    ),
    ("run digits callbacks.table.format=xls", "callbacks.table.format is 'xls'; it must be 'csv' or 'parquet'"),
    ("run digits local_trainig.epochs=2", "did you mean 'local_training'"),
    ("run digits --out file.txt", "file.txt is a file; a folder is needed"),
    ("run digits --out here", "here is not a run's folder: it has no config.yaml, but other files (notes.txt)"),
    ("run list.yaml", "list.yaml is not a configuration: a mapping of keys to values is needed"),
    ("run broken.yaml", "broken.yaml is not valid YAML"),
    ("run here", "here is a folder; name a preset, or a file with a configuration"),
    ("sweep digits lr=0.1,fast", "local_training.learning_rate is 'fast'; it must be a finite number"),
    ("sweep digits lr", "'lr' is not of the form key=value"),
    ("sweep digits lr=0.1,0.1", "are the same configuration; give every value once"),
    ("sweep digits lr=0.1,0.2 callbacks=early_stopping", "callbacks.early_stopping cannot be used in a sweep"),
    ("sweep digit", "unknown preset 'digit'; did you mean 'digits'"),
    ("pretrain mpl", "did you mean 'mlp'"),
    ("pretrain mlp --data digit", "did you mean 'digits'"),
    ("pretrain mlp --epochs 0", "Invalid value for '--epochs': Input should be greater than or equal"),
    ("reproduce lefel", "did you mean 'lefl'"),
    ("reproduce lefl --scale huge", "unknown scale 'huge'. There are: smoke, small, medium, full"),
    ("compare missing", "no run in missing: no such folder"),
    ("compare here", "here is not a run's folder: it has no config.yaml"),
    ("cite entropi", "did you mean"),
]


class Given:
    """A partition that was made elsewhere."""

    clients = N

    def __init__(self, client):
        self.client = client

    def assign(self, y, rng, owner=None):
        return self.client


def subclass(base, **methods):
    """A class that a user writes."""
    return type(base)("Mine", (base,), dict(methods))


@pytest.fixture(autouse=True)
def as_a_user():
    """Annotations are checked in tests alone; here a user's errors are met as he meets them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module")
def names(blobs):
    """What the expressions of the tables may name."""
    federation = fs.Federation(blobs, partition.Iid(clients=N))
    task = fs.Task(models.LogisticRegression(3))

    def make(**answers):
        return fs.Experiment(**{"task": task, "cohort_size": 3, "rounds": 2, **answers})

    own = {
        "blobs": blobs,
        "one_small": dataclasses.replace(blobs, owner=(np.arange(len(blobs.y)) == 0).astype(np.int32)),
        "bare": fs.dataset("bare", blobs.x, blobs.y),
        "federation": federation,
        "task": task,
        "make": make,
        "experiment": make(),
        "run": lambda **answers: fs.simulate(make(**answers), federation),
        "run_check": lambda **answers: make(**answers).check(federation.draw(0)),
        "X": np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32),
        "Y": np.arange(12) % 3,
        "signals": fs.signals,
        "Signals": fs.Signals,
    }
    return {**globals(), **own}


@pytest.fixture
def nothing_compiles():
    before = run_chunk.programs
    yield
    assert run_chunk.programs == before


def check_words(message, words):
    """A message is one line, and says this."""
    assert "\n" not in message
    assert words in message


@pytest.mark.usefixtures("nothing_compiles")
@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[given for given, _ in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(names, given, words):
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        eval(given, names)
    check_words(str(caught.value), words)


@pytest.mark.usefixtures("nothing_compiles")
@pytest.mark.parametrize(("given", "words"), WARNED, ids=[given for given, _ in WARNED])
def test_what_cannot_be_meant_is_warned_of_with_the_remedy(names, given, words):
    with pytest.warns(UserWarning, match=re.escape(words)) as caught:
        eval(given, names)
    for warning in caught:
        assert "\n" not in str(warning.message)


@pytest.mark.usefixtures("nothing_compiles")
@pytest.mark.parametrize("given", UNREMARKED)
def test_what_may_be_meant_passes_without_remark(names, given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eval(given, names)


PARTS = {
    fs.ClientSelector: "client_selection",
    fs.DataSelector: "data_selection",
    fs.Correction: "correction",
    fs.Aggregator: "aggregation",
    fs.LocalTrainer: "local_training",
    SGD: "local_training",
    Availability: "availability",
}


def strategy(base, methods):
    """A user's strategy as an answer of an experiment."""
    return {PARTS[base]: subclass(base, **methods)()}


@pytest.mark.usefixtures("nothing_compiles")
@pytest.mark.parametrize(("base", "methods", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_strategy_that_breaks_the_contract_is_refused_before_anything_compiles(names, base, methods, words):
    with pytest.raises(ValueError, match="Mine") as caught:
        names["run"](**strategy(base, methods))
    check_words(str(caught.value), words)


@pytest.mark.usefixtures("nothing_compiles")
def test_random_numbers_that_are_not_drawn_from_the_key_are_refused(names):
    """They would be the same in every round of a compiled program."""

    def draw(count):
        return jnp.asarray(np.random.rand(count))  # noqa: NPY002 (what is refused)

    for base, draws in (
        (fs.ClientSelector, lambda self, key, state, ctx: top_m(key, draw(N), ctx.available, ctx.m)),
        (fs.DataSelector, lambda self, key, state, valid: valid & (draw(len(valid)) < 0.9)),
    ):
        for debug in (False, True):
            with pytest.raises(
                ValueError, match=r"drawn from np\.random: a compiled program draws them once"
            ) as caught:
                fs.simulate(names["make"](**strategy(base, {"select": draws})), names["federation"], debug=debug)
            assert any(note.startswith("in ") and "selection" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("base", "methods", "words"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED])
def test_a_number_that_cannot_be_is_an_error_in_debug_mode(names, base, methods, words):
    experiment = names["make"](**strategy(base, methods), rounds=1)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        fs.simulate(experiment, names["federation"], seeds=[7], debug=True)
    said = "; ".join([str(caught.value), *caught.value.__notes__])
    assert words in said
    assert "round 0" in said
    assert "seed 7" in said


class AlsoBroken(Broken):
    """The same under another name."""

    name = "also_broken"


TOGETHER: dict[str, tuple[dict, list[str]]] = {
    "a cohort and weights of examples": (
        strategy(fs.ClientSelector, chosen(8, 4, 4, weight=(-1.0, 1.0, 1.0)))
        | strategy(fs.DataSelector, {"select": lambda self, key, state, valid: -1.0 * valid}),
        [
            "Mine: 4 selected clients that do not exist (seed 3 in 2 rounds, first in round 1; seed 5 in 2 rounds",
            "Mine: 4 clients selected twice in a round, without `replacement = True` (seed 3 in 2 rounds, first in",
            "Mine: 4 weights from `select` that are negative or not finite (seed 3 in 2 rounds, first in round 1;",
            "weights of examples that are negative, not finite, or neither 0 nor 1 without `weighted = True` (seed 3",
        ],
    ),
    "scores and signals": (
        strategy(
            fs.ClientSelector,
            {
                "select": lambda self, key, state, ctx, broken: top_m(key, broken, ctx.available, ctx.m),
                "signals": give(fs.Signals(before=[Broken()], trained=[AlsoBroken()])),
            },
        ),
        [
            "Mine: 32 scores that are NaN, by which clients were to be ranked (they came last) (seed 3 in 2 rounds",
            "Mine: 32 values of the signal 'broken' that are not finite (seed 3 in 2 rounds, first in round 1;",
            "Mine: 12 values of the signal 'also_broken' that are not finite (seed 3 in 2 rounds, first in round 1;",
        ],
    ),
    "candidates and acceptance": (
        strategy(
            fs.ClientSelector,
            {
                **chosen(0, 1, -1, mask=(True, True, False), weight=(1.0, 1.0, 0.0)),
                "candidates": give(jnp.array([0, 9])),
                "accept": lambda self, key, state, ctx, cohort: cohort.replace(mask=jnp.ones(3, bool)),
            },
        )
        | {"availability": Trace(np.arange(16).reshape(2, 8) != 8)}
        | strategy(fs.Aggregator, {"weights": lambda self, c, n, p: -0.1 * c.mask}),
        [
            "Mine: 8 weights of updates that are negative or not finite (seed 3 in 2 rounds, first in round 1;",
            "Mine: 4 candidates that do not exist, from `candidates` (seed 3 in 2 rounds, first in round 1;",
            "Mine: 2 selected clients that are not available (seed 3 in 1 round, first in round 2; seed 5 in 1 round",
            "Mine: 4 members from `accept` that did not return an update (seed 3 in 2 rounds, first in round 1;",
        ],
    ),
    "a weight for which the run ends": (
        strategy(
            fs.ClientSelector,
            {**ANY, "accept": lambda self, key, state, ctx, cohort: cohort.replace(weight=-cohort.weight)},
        ),
        ["Mine: 6 weights from `accept` that are negative or not finite (seed 3 in 1 round, first in round 1; seed 5"],
    ),
}


@pytest.mark.filterwarnings("ignore:.* diverged:UserWarning")  # the weights of one make everything NaN
@pytest.mark.parametrize("name", TOGETHER)
def test_a_compiled_run_counts_what_cannot_be_and_names_strategy_round_and_seed(names, name):
    answers, lines = TOGETHER[name]
    with pytest.warns(UserWarning, match="Mine") as caught:
        history = fs.simulate(names["make"](**answers), names["federation"], seeds=[3, 5])
    found = summarize(history)
    table = build_table("mine", found)
    said = [str(warning.message) for warning in caught]
    for line in lines:
        assert sum(line in message for message in said) == 1, said
        assert line in table.caption
    assert [fault["strategy"] for fault in found["faults"]["found"]] == ["Mine"] * len(found["faults"]["found"])
    assert all(fault["seeds"] == [3, 5] for fault in found["faults"]["found"])


def idle_run(names, **answers):
    """The history of a run in which somebody may not train, its results, and the warnings at its end."""
    federation = fs.Federation(names["blobs"], partition.Iid(clients=N), devices=laws.Uniform())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = fs.simulate(names["make"](**answers), federation, seeds=2)
    return history, summarize(history), [str(warning.message) for warning in caught]


HALF = np.arange(16).reshape(2, 8) >= 8
"""Nobody in the first round, everybody in the second."""


@pytest.mark.parametrize(
    "answers",
    [{"availability": Trace(HALF & False)}, {"availability": Trace(HALF | True), "deadline": Deadline(1e-9)}],
    ids=["nobody available", "impossible deadline"],
)
def test_a_run_in_which_nobody_trains_says_so(names, answers):
    history, found, said = idle_run(names, **answers)
    (line,) = said
    assert line.startswith("no update came back in any round of all seeds, so nothing was learnt")
    assert found["untrained"] == {"seeds": [0, 1], "of": 2}
    assert found["idle"]["per_seed"] == [2.0, 2.0]
    assert line in build_table("idle", found).caption
    assert history["idle"].all()


def test_a_run_in_which_no_update_has_a_weight_says_so(names):
    history, found, said = idle_run(names, **strategy(fs.ClientSelector, chosen(0, 1, 2, weight=(0.0, 0.0, 0.0))))
    (line,) = said
    assert line.startswith("all updates had the weight 0 in every round of all seeds: nothing was merged")
    assert found["unweighted"] == {"seeds": [0, 1], "of": 2}
    assert line in build_table("empty", found).caption
    assert not history["idle"].any()


def test_a_run_in_which_training_changes_nothing_says_so(names):
    """The number of mistakes has no gradient."""
    mistakes = fs.Task(models.LogisticRegression(3), loss=lambda outputs, y: (outputs.argmax(-1) != y).astype(float))
    _, found, said = idle_run(names, task=mistakes, rounds=3)
    (line,) = said
    assert line.startswith("the loss is the same after every evaluated round of all seeds: see whether the loss has")
    assert found["unmoved"] == {"seeds": [0, 1], "of": 2}
    assert line in build_table("unmoved", found).caption
    assert "unmoved" not in idle_run(names, rounds=3)[1]
    assert "unmoved" not in idle_run(names, task=mistakes)[1], "one round between two evaluations may merge nothing new"


def test_a_client_that_does_not_exist_is_no_selection(names):
    with pytest.warns(UserWarning, match="2 selected clients that do not exist"):
        history = names["run"](**strategy(fs.ClientSelector, chosen(1, 8, 2)))
    np.testing.assert_array_equal(history.counts()[0], [0, 2, 2, 0, 0, 0, 0, 0])
    assert (history.selections[..., 1] == -1).all()


def test_single_rounds_in_which_nobody_trains_are_counted(names):
    history, found, said = idle_run(names, availability=Trace(HALF))
    assert said == []
    assert found["idle"]["per_seed"] == [1.0, 1.0]
    assert "untrained" not in found
    assert history["idle"].tolist() == [[True, False]] * 2


def test_a_run_without_faults_has_none(names):
    _, found, said = idle_run(names, availability=Trace(HALF | True))
    assert said == []
    assert not found.keys() & {"faults", "untrained", "idle"}


def test_scores_that_are_nan_come_last():
    key, all_there = jax.random.key(0), jnp.ones(8, bool)
    for draw in (top_m, gumbel_m):
        cohort = draw(key, jnp.array(SOME_NAN), all_there, 6)
        assert sorted(cohort.client.tolist()) == [2, 3, 4, 5, 6, 7]
        assert int(cohort.nan_scores) == 2
    assert top_m(key, jnp.array([NAN, 1.0]), jnp.array([True, False]), 2).mask.tolist() == [True, False]
    greedy = epsilon_greedy_m(key, jnp.array(SOME_NAN), all_there, 6, 0.5, per_slot=True)
    assert int(greedy.nan_scores) == 2


def call(line):
    return CliRunner().invoke(main, line.split())


@pytest.fixture
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "notes.txt").write_text("text")
    (tmp_path / "list.yaml").write_text("[1, 2]")
    (tmp_path / "broken.yaml").write_text("a: [")


DOCS = Path(__file__).resolve().parents[1]


@functools.cache
def leads_somewhere(pointer):
    """Whether a command that an error names can be given, or its page is there."""
    if pointer.startswith("docs/"):
        return (DOCS / pointer).is_file()
    assert re.fullmatch(r"`fedjax-sel [^`]+`", pointer), pointer
    return call(pointer.strip("`").removeprefix("fedjax-sel ")).exit_code == 0


@pytest.mark.usefixtures("nothing_compiles", "somewhere_else")
@pytest.mark.parametrize(("line", "words"), COMMANDS, ids=[line for line, _ in COMMANDS])
def test_a_command_that_cannot_be_carried_out_answers_in_one_line(line, words):
    done = call(line)
    assert done.exit_code == 2, (done.output, done.exception)
    said = done.stderr.strip()
    assert "Traceback" not in done.output
    assert "0:00:0" not in done.stdout, "the bar of a run that never began"
    assert not said.startswith("error: ") or leads_somewhere(said.rpartition("; see ")[2])
    assert re.sub(r"\s+", " ", words) in re.sub(r"[\s│]+", " ", said)
    if said.startswith("error: "):
        assert len(said.splitlines()) == 1
    else:  # of the parser of command lines
        assert "Usage:" in said


@pytest.mark.parametrize(("share", "m"), [(0.5, 4), (1.0, 8), (0.01, 1), (0.3, 2), (1, 1)])
def test_a_share_is_of_all_clients_and_at_least_one_of_them(names, share, m):
    assert names["make"](cohort_size=share).count_cohort(N) == m


def test_numpy_integers_count_as_whole_numbers(names):
    assert names["make"](cohort_size=np.int64(3)).count_cohort(N) == 3


def test_a_selector_without_a_rule_to_select_cannot_be_made():
    with pytest.raises(TypeError, match=r"abstract.* '?select"):
        subclass(fs.ClientSelector, observe=give(()))()


def test_the_table_is_long():
    assert len(REFUSED) + len(WARNED) + len(BROKEN) + len(COUNTED) + len(COMMANDS) >= 400


@pytest.mark.parametrize(
    ("changes", "page"),
    [
        ({"cohort_size": 5}, "how-to/command-line"),
        ({"correction": fs.correction.Proximal(), "aggregation": fs.aggregation.FedNova()}, "how-to/strategies"),
        ({"availability": Trace(np.ones((3, 9), bool))}, "how-to/devices"),
        ({"deadline": Deadline(1.0)}, "how-to/devices"),
        ({"evaluate_every": 0}, "how-to/command-line"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_an_error_of_an_experiment_names_a_page_about_it(blobs, changes, page):
    given = {"cohort_size": 2, "rounds": 2, **changes}
    data = fs.Federation(blobs, fs.partition.Iid(clients=4)).draw(0)
    with pytest.raises(ValueError, match=r"\w") as caught:
        fs.Experiment(fs.Task.on(fs.models.MLP(classes=3), blobs), **given).check(data)
    assert list_notes(caught.value)[-1] == f"see docs/{page}.md"


def test_a_trainer_that_knows_no_end_is_refused_where_a_deadline_may_set_one(names):
    class Endless(fs.LocalTrainer):
        def plan(self, num_examples, longest, round, rounds):
            return SGD(epochs=1).plan(num_examples, longest, round, rounds)

        def train(self, key, task, variables, examples, plan, *, num_steps, transform=None):
            return SGD(epochs=1).train(key, task, variables, examples, plan, num_steps=num_steps, transform=transform)

    slow = fs.Federation(names["blobs"], partition.Iid(clients=N), devices=laws.LogNormal())
    for federation, more in (
        (slow, {"deadline": Deadline(1.0)}),
        (slow, {}),
        (names["federation"], {"volatility": Bernoulli(0.5)}),
    ):
        with pytest.raises(ValueError, match=r"Endless.plan cannot be called .* it must take \(.*, \*, max_steps\)"):
            fs.simulate(names["make"](local_training=Endless(), **more), federation)
    assert fs.simulate(names["make"](local_training=Endless()), names["federation"]).rounds == 2


def test_a_metric_is_called_by_a_text():
    with pytest.raises(ValueError, match="a metric is called 3; a name is a text"):
        fs.Task(models.LogisticRegression(3), metrics={3: lambda outputs, targets: targets})
