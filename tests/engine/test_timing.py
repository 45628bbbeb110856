"""Rounds on devices: who is late, what partial work is, how long it takes, who can be reached."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, client_selection, partition, simulate
from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection.divfl import DivFL
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.oort import Oort
from fedjax_sel.client_selection.tifl import TiFL
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.data.federated import Examples
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.data_selection.high_loss import HighLoss
from fedjax_sel.data_selection.random_subset import RandomSubset
from fedjax_sel.devices.availability import Bernoulli, Trace
from fedjax_sel.devices.clock import Deadline, Timing, joules
from fedjax_sel.devices.laws import LogNormal
from fedjax_sel.devices.profile import DeviceProfile
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.engine.init import compiled_context
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.signals import Loss, UpdateNorm

N, CLOSE = 12, {"rtol": 2e-4, "atol": 2e-5}


class These(ClientSelector):
    """The clients it was given, in every round."""

    client: jax.Array

    def select(self, key, state, ctx):
        return cohort_of(self.client, self.client >= 0)


def these(*clients):
    return These(jnp.array(clients, jnp.int32))


def federation(blobs, devices=None, *, alpha=None, holdout=0.0):
    law = partition.Iid(clients=N) if alpha is None else partition.Dirichlet(clients=N, alpha=alpha)
    return Federation(blobs, law, holdout=holdout, data_seed=3, devices=devices)


def experiment(blobs, selector, **settings):
    m = settings.pop("cohort_size", 4)
    trainer = settings.pop("local_training", SGD(0.1, batch_size=5, epochs=2))
    task = Task.on(LogisticRegression(classes=3), blobs)
    return Experiment(
        task, selector, local_training=trainer, cohort_size=m, rounds=settings.pop("rounds", 5), **settings
    )


def model_of(history):
    return jax.tree.leaves(history.variables)


def different(drawn):
    """Devices of which each is its own, with turns of 0.1 to some seconds."""
    rng = np.random.default_rng(2)
    return DeviceProfile.of(
        compute=rng.uniform(300, 9000, drawn),
        efficiency=rng.uniform(1e3, 1e4, drawn),
        memory=1e9,
        up=rng.uniform(50, 400, drawn),
        down=rng.uniform(100, 900, drawn),
        radio=rng.uniform(0.5, 2, drawn),
    )


class Clock:
    """What each client takes, by formulas, from the rows and the devices."""

    def __init__(self, history, data):
        self.d, self.size = jax.tree.map(np.asarray, data.devices), np.asarray(data.num_examples)
        self.model, self.flops = 4 * history.about["parameters"], history.about["forward_flops_per_example"]

    def parts(self, i, epochs=2):
        """Seconds of download, computation, upload."""
        work = 3 * self.flops * epochs * self.size[i]
        return np.array([self.model / self.d.down[i], work / self.d.compute[i], self.model / self.d.up[i]])

    def joules(self, i, down, compute, up):
        return self.d.compute[i] / self.d.efficiency[i] * compute + self.d.radio[i] * (down + up)

    def polled(self, i):
        """Seconds and joules of receiving the model, one pass over the rows and one number up."""
        parts = self.model / self.d.down[i], self.flops * self.size[i] / self.d.compute[i], 4 / self.d.up[i]
        return sum(parts), self.joules(i, *parts)


def test_without_a_deadline_a_round_lasts_as_long_as_its_slowest_member(blobs):
    recipe = federation(blobs, different(N), alpha=0.5)
    history, data = simulate(experiment(blobs, Uniform()), recipe, seeds=2), recipe.draw(0)
    clock = Clock(history, data)
    for i in range(2):
        turns = [[clock.parts(c) for c in cohort] for cohort in history.selections[i]]
        np.testing.assert_allclose(history["seconds"][i], np.sum(turns, 2).max(1), rtol=1e-5)
        energy = [sum(clock.joules(c, *clock.parts(c)) for c in cohort) for cohort in history.selections[i]]
        np.testing.assert_allclose(history["joules"][i], energy, rtol=1e-5)


def test_asking_takes_time_too_and_who_was_asked_has_the_model(blobs):
    recipe = federation(blobs, different(N), alpha=0.5)
    history, data = simulate(experiment(blobs, Entropy(0.2)), recipe), recipe.draw(0)
    clock = Clock(history, data)
    asked = np.array([clock.polled(i) for i in range(N)])
    for t, cohort in enumerate(history.selections[0]):
        parts = {c: clock.parts(c) * [0, 1, 1] for c in cohort}
        slowest = max(p.sum() for p in parts.values())
        np.testing.assert_allclose(history["seconds"][0, t], asked[:, 0].max() + slowest, rtol=1e-5)
        training = sum(clock.joules(c, *p) for c, p in parts.items())
        np.testing.assert_allclose(history["joules"][0, t], asked[:, 1].sum() + training, rtol=1e-5)


def slow(drawn, **changes):
    """Devices that compute a thousand operations a second, and send in no time."""
    numbers = {"compute": 1e3, "efficiency": 1e9, "memory": 1e9, "up": 1e12, "down": 1e12, **changes}
    return DeviceProfile.of(**{name: np.broadcast_to(value, drawn).astype(float) for name, value in numbers.items()})


def test_looking_at_examples_takes_its_time_before_training_where_work_is_cut(blobs):
    """What a client does until the deadline is what it is billed for: operations over its rate are its seconds."""
    recipe = federation(blobs, slow(N))
    looks = experiment(
        blobs, Uniform(), rounds=1, cohort_size=1, data_selection=HighLoss(0.5), local_training=SGD(0.1, batch_size=1)
    )
    whole = simulate(looks, recipe)
    looking = whole["selection_flops"][0, 0] / 1e3
    training = whole["client_flops"][0, 0] / 1e3
    np.testing.assert_allclose(whole["seconds"][0, 0], looking + training, rtol=1e-5)
    cut = simulate(looks.replace(deadline=Deadline(looking + 0.5 * training, late="partial")), recipe)
    done = (cut["selection_flops"] + cut["client_flops"])[0, 0] / 1e3
    np.testing.assert_allclose(cut["seconds"][0, 0], done, rtol=1e-5)
    assert 0.4 * training < cut["client_flops"][0, 0] / 1e3 < 0.51 * training
    with pytest.warns(UserWarning, match="no update came back"):
        late = simulate(looks.replace(deadline=Deadline(0.5 * looking, late="partial")), recipe)
    assert late["client_flops"][0, 0] == 0
    np.testing.assert_allclose(late["seconds"], 0.5 * looking, rtol=1e-5)
    np.testing.assert_allclose(late["selection_flops"] / 1e3, 0.5 * looking, rtol=0.1)  # whole examples
    assert late["selection_flops"][0, 0] / 1e3 <= 0.5 * looking


class AsksAfterwards(Uniform):
    """Uniform cohorts, whose members report their loss after training."""

    def signals(self):
        return Signals(trained=[Loss()])

    def observe(self, key, state, ctx, cohort, **told):
        return state


@pytest.mark.parametrize("split", ["training", "holdout"])
def test_signals_of_trained_models_take_the_time_of_the_examples_that_they_look_at(blobs, split):
    recipe = Federation(blobs, partition.Iid(N), holdout=0.2, devices=slow(N))
    asks = experiment(blobs, AsksAfterwards(), rounds=1, cohort_size=1, signal_split=split)
    history = simulate(asks, recipe)
    flops = history["client_flops"] + history["selection_flops"]
    np.testing.assert_allclose(history["seconds"], flops / 1e3, rtol=1e-5)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_signals_that_the_deadline_cuts_off_are_billed_as_far_as_they_got(blobs, share):
    asks = experiment(blobs, AsksAfterwards(), rounds=1, cohort_size=1)
    recipe = federation(blobs, slow(N))
    whole = simulate(asks, recipe)
    training, signals = whole["client_flops"][0, 0] / 1e3, whole["selection_flops"][0, 0] / 1e3
    with pytest.warns(UserWarning, match="no update came back"):
        late = simulate(asks.replace(deadline=Deadline(training + share * signals, late="drop")), recipe)
    np.testing.assert_allclose(late["client_flops"], whole["client_flops"])
    each = signals / 18  # of 216 examples, a client has 18
    done = late["selection_flops"][0, 0] / 1e3
    assert share * signals - 1.001 * each < done <= share * signals


class AcceptsAll(Uniform):
    """Uniform cohorts, all of whose updates are accepted."""

    def accept(self, key, state, ctx, cohort):
        return cohort


@pytest.mark.parametrize("late", ["drop", "partial"])
def test_who_misses_the_deadline_was_sending_also_where_updates_are_accepted(blobs, late):
    up = np.r_[1.0, np.full(N - 1, 1e12)]
    recipe = federation(blobs, slow(N, compute=1e12, up=up))
    plain, accepting = (
        simulate(experiment(blobs, selector, rounds=1, cohort_size=N, deadline=Deadline(10.0, late=late)), recipe)
        for selector in (Uniform(), AcceptsAll())
    )
    for name in ("seconds", "joules", "bytes_up"):
        np.testing.assert_allclose(plain[name], accepting[name], rtol=1e-6)
    np.testing.assert_allclose(plain["seconds"], 10.0)


@pytest.fixture(scope="module")
def limit(blobs):
    """A deadline that half of all clients miss."""
    recipe = federation(blobs, different(N))
    clock = Clock(simulate(experiment(blobs, Uniform(), rounds=1), recipe), recipe.draw(0))
    return float(np.median([clock.parts(i).sum() for i in range(N)]))


def test_who_is_late_returns_nothing_and_the_round_ends_at_the_deadline(blobs, limit):
    recipe = federation(blobs, different(N))
    late = experiment(blobs, Uniform(), deadline=Deadline(limit), rounds=12)
    history = simulate(late, recipe, seeds=2)
    clock = Clock(history, recipe.draw(0))
    counts = set()
    for i in range(2):
        for t, cohort in enumerate(history.selections[i]):
            parts = {c: clock.parts(c) for c in cohort}
            in_time = [c for c in cohort if parts[c].sum() <= limit]
            counts.add(len(in_time))
            assert history["bytes_up"][i, t] == clock.model * len(in_time)
            assert history["bytes_down"][i, t] == clock.model * len(cohort)
            last = limit if len(in_time) < len(cohort) else max(p.sum() for p in parts.values())
            np.testing.assert_allclose(history["seconds"][i, t], last, rtol=1e-5)
            spent = 0.0
            for c, (down, compute, up) in parts.items():
                down = min(down, limit)
                compute = min(compute, limit - down)
                spent += clock.joules(c, down, compute, min(up, limit - down - compute))
            np.testing.assert_allclose(history["joules"][i, t], spent, rtol=1e-4)
    assert len(counts) > 2


def test_the_model_is_the_one_that_the_punctual_trained(blobs, limit):
    recipe = federation(blobs, different(N))
    clock = Clock(simulate(experiment(blobs, Uniform(), rounds=1), recipe), recipe.draw(0))
    cohort = [0, 1, 2, 3, 4, 5, 6]
    punctual = [c for c in cohort if clock.parts(c).sum() <= limit]
    assert 0 < len(punctual) < len(cohort)
    cut = simulate(
        experiment(blobs, these(*cohort), cohort_size=7, deadline=Deadline(limit), aggregation=Mean("size")), recipe
    )
    alone = simulate(experiment(blobs, these(*punctual), cohort_size=len(punctual), aggregation=Mean("size")), recipe)
    for a, b in zip(model_of(cut), model_of(alone), strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)


def test_where_nobody_returns_the_model_stays_and_the_round_still_lasts(blobs):
    recipe = federation(blobs, different(N))
    with pytest.warns(UserWarning, match="no update came back in any round of all seeds"):
        history = simulate(experiment(blobs, Oort(), deadline=Deadline(1e-3)), recipe, seeds=2)
    assert (history["bytes_up"] == 0).all()
    np.testing.assert_allclose(history["seconds"], 1e-3, rtol=1e-6)
    assert len(set(history["loss"][0].tolist())) == 1
    assert np.isnan(history["training_loss"]).all(), "nobody reported one"


@pytest.mark.parametrize("aggregation", [Mean("size"), Mean("cohort"), FedNova(), DPFedAvg(1.0, 0.0)], ids=str)
def test_the_training_loss_is_a_mean_whatever_the_weights_add_up_to(blobs, aggregation):
    recipe = federation(blobs, different(N))
    alone = [
        float(simulate(experiment(blobs, these(c), cohort_size=1, rounds=1), recipe)["training_loss"][0, 0])
        for c in (1, 4)
    ]
    both = simulate(experiment(blobs, these(1, 4), cohort_size=2, rounds=1, aggregation=aggregation), recipe)
    assert min(alone) < both["training_loss"][0, 0] < max(alone)


class Nothing(Everything):
    """Half of the clients, by chance, select no example."""

    def select(self, key, state, valid):
        return valid & (jax.random.bits(key) % 2 == 0)


def test_a_member_without_examples_returns_nothing_with_devices_and_without(blobs):
    """Devices alone change no model; who has nothing to train on uploads nothing and weighs nothing."""
    recipe = federation(blobs, different(N))
    told = {"data_selection": Nothing(), "cohort_size": 6, "rounds": 4, "aggregation": Mean()}
    with_devices = simulate(experiment(blobs, Uniform(), **told), recipe)
    without = simulate(experiment(blobs, Uniform(), **told), replace(recipe, devices=None))
    for a, b in zip(model_of(with_devices), model_of(without), strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)
    np.testing.assert_array_equal(with_devices["bytes_up"], without["bytes_up"])
    assert 0 < without["bytes_up"].sum() < 4 * 6 * 4 * without.about["parameters"]


class AskedAfterwards(These):
    """The clients it was given, which measure their loss once they have trained."""

    def signals(self):
        return Signals(trained={"trained_loss": Loss()})

    def observe(self, key, state, ctx, cohort, **told):
        return state


class NobodyAny(RandomSubset):
    """No example of any client."""

    def select(self, key, state, valid, **signals):
        return jnp.zeros_like(valid)


def test_a_member_without_examples_takes_no_time_for_signals_that_it_does_not_measure(blobs):
    told = {"data_selection": NobodyAny(), "rounds": 2}
    with pytest.warns(UserWarning, match="no update came back"):
        asked = simulate(experiment(blobs, AskedAfterwards(jnp.arange(4)), **told), federation(blobs, different(N)))
    with pytest.warns(UserWarning, match="no update came back"):
        plain = simulate(experiment(blobs, these(0, 1, 2, 3), **told), federation(blobs, different(N)))
    for cost in ("flops", "bytes_up", "seconds", "joules"):
        np.testing.assert_allclose(asked[cost], plain[cost], rtol=1e-6)


def train_by_hand(run, recipe, client, steps):
    """Model after all rounds, and loss and examples of each, of a client whose loop breaks off after `steps` steps."""
    data, key, losses, seen = jax.tree.map(jnp.asarray, recipe.draw(0)), jax.random.key(0), [], []
    index, valid = data.examples_of(client)
    model = run.task.init(key_for(key, Purpose.MODEL), data.x)
    for t in range(run.rounds):
        plan = run.local_training.plan(valid.sum(), data.longest, jnp.int32(t), jnp.int32(run.rounds))
        own, examples = key_for(key, Purpose.TRAIN, t, client), Examples(data, index, valid)
        update = run.local_training.train(own, run.task, model, examples, plan, num_steps=jnp.int32(steps))
        model = jax.tree.map(jnp.add, model, update.delta)
        losses.append(float(update.loss))
        seen.append(int(update.examples_seen))
    return model, losses, seen


SEEN = np.array([0, 5, 10, 15, 18, 23, 28, 33, 36])
"""Examples after each of the 8 steps of a client that has 18, in batches of 5 and 2 epochs."""


@pytest.mark.parametrize("steps", [1, 3, 4, 5])
def test_partial_work_is_the_first_steps_of_the_same_shuffles(blobs, steps):
    """The deadline falls within step `steps + 1`; a step takes as long as it has examples."""
    settings = {"epochs": 2, "batch_size": 5, "momentum": 0.9}
    recipe = federation(blobs, different(N))
    whole = simulate(experiment(blobs, these(6), cohort_size=1, local_training=SGD(0.1, **settings), rounds=1), recipe)
    clock = Clock(whole, recipe.draw(0))
    assert clock.size[6] == 18
    down, compute, up = clock.parts(6)
    deadline = Deadline(float(down + up + compute * (SEEN[steps] + 2.9) / 36), "partial")
    run = experiment(blobs, these(6), cohort_size=1, local_training=SGD(0.1, **settings), rounds=2, deadline=deadline)
    late, (model, losses, seen) = simulate(run, recipe), train_by_hand(run, recipe, 6, steps)
    for a, b in zip(model_of(late), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(a[0], b, **CLOSE)
    np.testing.assert_array_equal(late["client_flops"][0], 3 * clock.flops * np.array(seen))
    np.testing.assert_allclose(late["training_loss"][0], losses, **CLOSE)
    np.testing.assert_allclose(late["seconds"], down + up + compute * SEEN[steps] / 36, rtol=1e-5)
    assert (late["seconds"] < deadline.seconds).all()


def test_each_member_does_the_part_that_it_has_time_for(blobs, limit):
    """Every member's own steps, aggregated by hand: the mean of single clients trained for so many steps."""
    recipe = federation(blobs, different(N))
    cohort = (0, 1, 2, 3, 4)
    run = experiment(blobs, these(*cohort), cohort_size=5, rounds=1, deadline=Deadline(limit, "partial"))
    together = simulate(run, recipe)
    clock, models, counts = Clock(together, recipe.draw(0)), [], []
    for c in cohort:
        down, compute, up = clock.parts(c)
        part = min(1.0, max(0.0, (limit - down - up) / compute))
        steps = int(np.floor(8 * part))
        steps -= SEEN[steps] > 36 * part  # steps have 5 examples, the last of an epoch 3
        counts.append(steps)
        if steps:
            model, _, _ = train_by_hand(run, recipe, c, steps)
            models.append(jax.tree.leaves(model))
    assert len(set(counts)) > 2
    assert set(clock.size[list(cohort)]) == {18}
    for got, *each in zip(model_of(together), *models, strict=True):
        np.testing.assert_allclose(got[0], np.mean(each, 0), **CLOSE)


SYSTEM = {"device_heuristic", "fedcs", "tifl", "oort"}


@pytest.mark.parametrize("name", sorted(SYSTEM | {"uniform", "round_robin", "entropy"}))
def test_who_cannot_be_reached_is_never_selected(blobs, name):
    selector = TiFL(tiers=3) if name == "tifl" else client_selection.load(name)()
    recipe = federation(blobs, LogNormal())
    run = experiment(blobs, selector, availability=Bernoulli(0.3), rounds=10)
    history, some, few = simulate(run, recipe, seeds=[0, 4]), 0, 0
    for i, seed in enumerate((0, 4)):
        for t, cohort in enumerate(history.selections[i]):
            key = key_for(jax.random.key(seed), Purpose.AVAILABILITY, t)
            reachable = np.flatnonzero(Bernoulli(0.3).available(key, t, N))
            chosen = cohort[cohort >= 0]
            assert set(chosen.tolist()) <= set(reachable.tolist())
            assert len(chosen) == len(set(chosen.tolist()))
            if name != "tifl":  # which takes one tier's
                assert len(chosen) == min(4, len(reachable))
            some, few = some + len(chosen), few + (len(reachable) < 4)
    assert some
    assert few, "in some rounds there must be too few"


def test_a_round_without_anybody_is_passed_over(blobs):
    present = np.ones((3, N), bool)
    present[1] = False
    run = experiment(blobs, Oort(), availability=Trace(present), rounds=3)
    history = simulate(run, federation(blobs, LogNormal()))
    assert (history.selections[0, 1] == -1).all()
    assert history["seconds"][0, 1] == history["joules"][0, 1] == 0
    assert history["loss"][0, 0] == history["loss"][0, 1] != history["loss"][0, 2]


@pytest.mark.parametrize(
    ("selector", "late", "t"),
    [(Oort(epsilon=0.5), "drop", 0), (TiFL(tiers=3, interval=2), "partial", 1)],
    ids=["oort-drop", "tifl-partial"],
)
def test_every_mapping_and_the_uncompiled_run_agree(blobs, selector, late, t):
    """The deadline is below what the second seed's cohort of round `t` takes, in which nobody is asked."""
    run = Experiment(
        Task.on(MLP(classes=3, hidden=(5,), dropout=0.2), blobs),
        selector,
        data_selection=RandomSubset(0.7),
        local_training=SGD(0.1, batch_size=8, epochs=2),
        cohort_size=4,
        rounds=2,
        availability=Bernoulli(0.8),
        signal_split="holdout",
    )
    recipe = federation(blobs, different(N), holdout=0.2)
    patient = simulate(run, recipe, seeds=[1, 2])
    run = run.replace(deadline=Deadline(0.7 * float(patient["seconds"][1, t]), late))
    uncompiled = simulate(run, recipe, seeds=[2], debug=True)
    np.testing.assert_array_equal(uncompiled.selections[0, : t + 1], patient.selections[1, : t + 1])
    cut = [uncompiled[metric][0, t] < patient[metric][1, t] for metric in ("bytes_up", "client_flops")]
    assert any(cut), "somebody must be late"
    for layout in (Layout(), Layout(clients=1, seeds="scan"), Layout(clients=3, examples=50)):
        compiled = simulate(run, recipe, seeds=[1, 2], layout=layout)
        np.testing.assert_array_equal(compiled.selections[1:], uncompiled.selections)
        for metric in compiled.metrics:
            np.testing.assert_allclose(compiled[metric][1:], uncompiled[metric], **CLOSE, err_msg=metric)


def test_deadlines_and_chances_are_traced(blobs):
    recipe = federation(blobs, LogNormal())
    run = experiment(blobs, Uniform(), availability=Bernoulli(0.8), deadline=Deadline(1.0))
    simulate(run, recipe)
    before = run_chunk.programs
    simulate(run.replace(availability=Bernoulli(0.4), deadline=Deadline(0.1)), recipe)
    assert run_chunk.programs == before


@pytest.mark.parametrize("selector", [Oort(), TiFL(tiers=3, interval=2)], ids=["oort", "tifl"])
def test_a_selector_with_a_memory_of_devices_goes_on_where_it_was_stopped(blobs, tmp_path, selector):
    run, recipe = experiment(blobs, selector, rounds=6), federation(blobs, LogNormal())
    whole = simulate(run, recipe, seeds=2, chunk=2)
    for callbacks in ([lambda history: history.rounds >= 2], []):
        part = simulate(run, recipe, seeds=2, chunk=2, checkpoints=Checkpoints(tmp_path), callbacks=callbacks)
    assert part.about["resumed_at"] == 2
    np.testing.assert_array_equal(whole.selections, part.selections)
    for metric in whole.metrics:
        np.testing.assert_array_equal(whole[metric], part[metric])


def test_a_deadline_needs_devices(blobs):
    with pytest.raises(ValueError, match="nobody is late; give the federation devices"):
        simulate(experiment(blobs, Uniform(), deadline=Deadline(1.0)), federation(blobs))


class LongestOf(ClientSelector):
    """All clients train and report the length of their update; the server wants that of the longest alone."""

    def signals(self):
        return Signals(trained={"length": UpdateNorm(sends=2, receives=3)})

    def select(self, key, state, ctx):
        return cohort_of(jnp.arange(ctx.m), jnp.ones(ctx.m, bool))

    def accept(self, key, state, ctx, cohort, *, length):
        return cohort.replace(mask=cohort.mask & (length == length.max()))


def alike():
    return DeviceProfile.of(compute=np.full(N, 1e4), efficiency=1e3, memory=1e9, up=200.0, down=500.0, radio=1.5)


def test_what_members_send_besides_models_takes_time(blobs):
    """A model has 2·3 + 3 = 9 numbers; so has the gradient that each member of DivFL sends."""
    data = federation(blobs, alike())
    for sketch, numbers in ((None, 9), (5, 5)):
        one = experiment(blobs, DivFL(sketch=sketch), cohort_size=N, rounds=3)
        history = simulate(one, data, seeds=[0])
        flops = (history["client_flops"] + history["selection_flops"])[0] / N
        expected = 4 * 9 / 500 + flops / 1e4 + 4 * (9 + numbers) / 200
        np.testing.assert_allclose(history["seconds"][0, 1:], expected[1:], rtol=1e-5)


def test_a_member_whose_update_is_not_wanted_sends_what_it_was_judged_by_alone(blobs):
    history = simulate(experiment(blobs, LongestOf(), cohort_size=N, rounds=2), federation(blobs, alike()), seeds=[0])
    np.testing.assert_array_equal(history["bytes_up"][0], 4 * 9)
    np.testing.assert_array_equal(history["selection_bytes_up"][0], 4 * 2 * N)
    flops = history["client_flops"][0] / N
    download, upload = 4 * (9 + 3) / 500, np.array([4 * (9 + 2) / 200] + [4 * 2 / 200] * (N - 1))
    spent = Timing(jnp.full(N, download), jnp.full(N, flops[0] / 1e4), jnp.asarray(upload))
    np.testing.assert_allclose(history["joules"][0], float(joules(alike(), spent).sum()), rtol=1e-4)
    np.testing.assert_allclose(history["seconds"][0], float(spent.total.max()), rtol=1e-4)


def test_a_selector_is_told_what_a_turn_takes_with_all_epochs_and_with_one(blobs):
    recipe = federation(blobs, different(N), alpha=0.5)
    run, data = experiment(blobs, LongestOf()), jax.tree.map(jnp.asarray, recipe.draw(0))
    about = {"parameters": run.task.parameters(data.x), "forward_flops_per_example": run.task.flops(data.x)}
    clock, ctx = Clock(SimpleNamespace(about=about), data), compiled_context(run, data, jax.random.key(0), jnp.int32(0))
    signal = 4 * 3 / clock.d.down + 4 * 2 / clock.d.up
    for told, epochs in ((ctx.timing, 2), (ctx.epoch, 1)):
        np.testing.assert_allclose(told.total, [clock.parts(i, epochs).sum() + signal[i] for i in range(N)], rtol=1e-5)
