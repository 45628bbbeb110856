"""Who is accepted after training, what that costs, and rules that see all updates, against plain sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Experiment, Layout, signals, simulate
from fedjax_sel.engine.cohort import merge_duplicates
from fedjax_sel.protocols import Aggregator, ClientSelector, DataSelector, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import PAD_CLIENT, Cohort
from tests.quadratic import TASK, A, clients, gradient, weights_of

RATE, STEPS, M = 0.1, 3, 4
MODEL = 4 * 2  # bytes
LAYOUTS = {"vmap": Layout(), "scan": Layout(clients=1, seeds="scan"), "blocks": Layout(clients=3)}


class LongestTwo(ClientSelector):
    """The same cohort in every round; of its updates the two longest are merged, the longest three times as much."""

    first: bool = static(default=True)

    @property
    def accepts_before_upload(self):
        return self.first

    def signals(self):
        return Signals(trained={"length": signals.UpdateNorm(sends=int(self.first))})

    def select(self, key, state, ctx):
        client = (ctx.round + jnp.arange(ctx.m)) % ctx.num_clients
        return Cohort(client.astype(jnp.int32), jnp.ones(ctx.m, bool), jnp.ones(ctx.m))

    def accept(self, key, state, ctx, cohort, *, length):
        rank = jnp.argsort(jnp.argsort(-jnp.where(cohort.mask, length, -1.0)))
        mask = cohort.mask & (rank < 2)
        return cohort.replace(mask=mask, weight=jnp.where(mask, jnp.where(rank == 0, 3.0, 1.0), 0.0))


def train(w, i, steps=STEPS, scale=1.0):
    y = w.copy()
    for _ in range(steps):
        y -= RATE * scale * gradient(y, i)
    return y - w


def experiment(selector, **parts):
    trainer = fs.local_training.SGD(RATE, batch_size=None, steps=STEPS)
    parts = {"aggregation": fs.aggregation.Mean(), **parts}
    return Experiment(TASK, client_selection=selector, local_training=trainer, cohort_size=M, rounds=5, **parts)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_only_accepted_updates_are_merged_with_the_weight_that_they_were_given(layout):
    history = simulate(experiment(LongestTwo()), clients(), seeds=[1], layout=layout)
    w = np.zeros(2)
    for t in range(5):
        deltas = [train(w, (t + i) % len(A)) for i in range(M)]
        best, second = sorted(deltas, key=np.linalg.norm)[::-1][:2]
        w = w + (3 * best + second) / 4
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_who_trained_and_who_uploaded_are_billed_apart(first):
    """Asked first, two of four members upload, and all send their update's length; asked afterwards, all upload."""
    history = simulate(experiment(LongestTwo(first)), clients(), seeds=2)
    np.testing.assert_array_equal(history["bytes_down"], MODEL * M)
    np.testing.assert_array_equal(history["bytes_up"], MODEL * (2 if first else M))
    np.testing.assert_array_equal(history["selection_bytes_up"], 4 * M if first else 0)
    assert (history["client_flops"] > 0).all()


class Middle(Aggregator):
    """The coordinate-wise middle of three."""

    stacked = True

    def weights(self, cohort, num_examples, plan):
        return jnp.where(cohort.mask, 1.0, 0.0)

    def combine(self, deltas, weights):
        return jax.tree.map(lambda leaf: jnp.median(leaf, axis=0), deltas)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_stacked_aggregator_gets_every_update(layout):
    one = experiment(fs.client_selection.RoundRobin(), aggregation=Middle()).replace(cohort_size=3)
    history = simulate(one, clients(), seeds=[1], layout=layout)
    w = np.zeros(2)
    for cohort in history.selections[0]:
        w = w + np.median([train(w, i) for i in cohort], axis=0)
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-6)


class Louder(DataSelector):
    """Every example weighs one more each time that its client trains."""

    weighted = True

    def init(self, num_clients, longest):
        return jnp.zeros(num_clients)

    def select(self, key, state, valid):
        return jnp.where(valid, 1.0 + state, 0.0)

    def observe(self, key, state, weight):
        return state + 1


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_data_selection_weighs_examples_and_remembers_each_client(layout):
    one = experiment(fs.client_selection.Uniform(), data_selection=Louder())
    history = simulate(one, clients(), seeds=[1], layout=layout)
    w, trained = np.zeros(2), np.zeros(len(A))
    for cohort in history.selections[0]:
        w = w + np.mean([train(w, i, scale=1 + trained[i]) for i in cohort], axis=0)
        trained[cohort] += 1
    assert trained.max() > trained.min()
    np.testing.assert_allclose(weights_of(history), w, rtol=1e-4, atol=1e-6)


def test_a_client_drawn_twice_trains_once_with_the_sum_of_its_weights():
    drawn = Cohort(jnp.array([3, 5, 3, PAD_CLIENT, 3]), jnp.arange(5) != 3, jnp.array([0.5, 2.0, 1.0, 9.0, 4.0]))
    merged = merge_duplicates(drawn)
    assert merged.client.tolist() == [3, 5, PAD_CLIENT, PAD_CLIENT, PAD_CLIENT]
    assert merged.mask.tolist() == [True, True, False, False, False]
    assert merged.weight.tolist() == [5.5, 2.0, 0.0, 0.0, 0.0]


class Wrong(ClientSelector):
    """A selector that breaks the contract in one way."""

    how: str = static(default="")

    def signals(self):
        loss = signals.Loss()
        return Signals(before=[loss], after={"loss": signals.TrainingLoss()}) if self.how == "names" else Signals()

    def init(self, key, ctx, host):
        return jnp.zeros(())

    def select(self, key, state, ctx, **told):
        client, mask, weight = jnp.arange(ctx.m), jnp.ones(ctx.m, bool), jnp.ones(ctx.m)
        if self.how == "type":
            return client
        return {"shape": Cohort(client[1:], mask[1:], weight[1:]), "mask": Cohort(client, 1 * mask, weight)}.get(
            self.how, Cohort(client, mask, weight)
        )

    def observe(self, key, state, ctx, cohort, **told):
        return {"state": state.astype(jnp.int32), "more": (state, state)}.get(self.how, state)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("type", r"Wrong.select returned int32 of shape \(4,\); it must return a Cohort"),
        ("shape", r"whose client is int32 of shape \(3,\); it must be integer of shape \(4,\)"),
        ("mask", r"whose mask is int32 of shape \(4,\); it must be bool of shape"),
        ("state", r"Wrong.observe returned a state in which it is int32 of shape \(\); `init` made it float32"),
        ("more", r"Wrong.observe returned a state of another structure than `init`"),
        ("names", r"two signals are called 'loss' \(before and after\); rename one"),
    ],
)
def test_a_selector_that_breaks_the_contract_is_refused_in_words_before_anything_compiles(how, says):
    with pytest.raises(ValueError, match=says):
        simulate(experiment(Wrong(how)), clients())


def test_a_signal_without_a_name_is_refused_unless_the_selector_gives_it_one():
    class Nameless(fs.ExampleSignal):
        def measure(self, logits, y):
            return logits[:, 0]

    with pytest.raises(ValueError, match="Nameless has no name; set it in the class, or give one, as in Signals"):
        fs.Signals(before=[Nameless()])
    assert fs.Signals(before={"first": Nameless()}).before == {"first": Nameless()}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda e, d: simulate(d, e), "the experiment is a Federation; .*the experiment comes first"),
        (lambda e, d: simulate(e, d.source), "the data is a Dataset, whose examples belong to nobody"),
        (lambda e, d: simulate(e, [d]), "the data is a list; it must be a Federation"),
        (lambda e, d: simulate(e, d, debog=True), "unknown option 'debog'; did you mean 'debug'"),
        (lambda e, d: simulate(e, d, chunk=0), "chunk is 0; it must be at least 1"),
        (lambda e, d: e.replace(aggregation=fs.aggregation.Mean), r"aggregation is Mean, a class; give .* Mean\(\)"),
        (
            lambda e, d: e.replace(correction=3),
            r"correction is 3 \(int\); it must be an instance of fedjax_sel.Correction",
        ),
        (lambda e, d: e.replace(task=TASK.model), "it must be a Task"),
    ],
)
def test_arguments_of_another_kind_are_refused_in_one_line(call, says):
    with pytest.raises(ValueError, match=says):
        call(experiment(fs.client_selection.Uniform()), clients())


@pytest.mark.parametrize("m", [65, 200])
def test_many_slots_are_merged_as_few_are(m):
    rng = np.random.default_rng(m)
    client, mask = rng.integers(0, 40, m).astype(np.int32), rng.random(m) < 0.8
    weight = rng.random(m).astype(np.float32)
    merged = merge_duplicates(
        Cohort(jnp.asarray(np.where(mask, client, PAD_CLIENT)), jnp.asarray(mask), jnp.asarray(weight))
    )
    seen = set()
    for slot in range(m):
        first = bool(mask[slot]) and client[slot] not in seen
        assert bool(merged.mask[slot]) == first
        assert int(merged.client[slot]) == (client[slot] if first else PAD_CLIENT)
        expected = weight[mask & (client == client[slot])].sum() if first else 0.0
        np.testing.assert_allclose(merged.weight[slot], expected, rtol=1e-5)
        seen |= {client[slot]} if mask[slot] else set()


@pytest.mark.parametrize("signal", [signals.UpdateNorm(), signals.Sketch(None), signals.Shapley("exact")], ids=str)
def test_members_are_not_accepted_before_they_upload_by_what_nobody_has_sent(signal):
    """The server computes these from updates that it received, which nobody would be billed for."""

    class Judges(LongestTwo):
        def signals(self):
            return Signals(trained={"length": signal})

    said = (
        f"Judges accepts members before they upload, by the signal {type(signal).__name__}, which is of their updates"
    )
    with pytest.raises(ValueError, match=said):
        simulate(experiment(Judges()), clients(), seeds=[1])
    assert Judges(first=False).signals().trained
