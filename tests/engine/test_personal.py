"""Parts of the model that clients keep for themselves, against plain loops over clients and batches."""

from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, dataset, partition, simulate
from fedjax_sel.aggregation.dp_fedavg import DPFedAvg
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.correction.proximal import Proximal
from fedjax_sel.data.federated import Examples
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.state import keep_returned
from fedjax_sel.local_training._shuffle import shuffle_epochs
from fedjax_sel.local_training.alternating import Alternating, fix
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import Signals
from fedjax_sel.signals import Loss
from fedjax_sel.types import PAD_CLIENT, Cohort

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
RATE, SIZE, ROUNDS = 0.2, 6, 3


@pytest.fixture(scope="module")
def clients():
    """Five clients of unequal size."""
    rng = np.random.default_rng(7)
    y = np.arange(150) % 3
    x = rng.normal(size=(150, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    blobs = dataset("blobs", x.astype(np.float32), y, test=0.2)
    return Federation(blobs, partition.Dirichlet(clients=5, alpha=0.5, min_examples=5), holdout=0.3, data_seed=1)


TASK = Task(MLP(classes=3, hidden=(4,)), personal=("Dense_1",))
PER = Experiment(
    TASK,
    local_training=SGD(RATE, batch_size=SIZE, epochs=2),
    aggregation=Mean("size"),
    cohort_size=2,
    rounds=ROUNDS,
    evaluate_clients_every=1,
)
REP = PER.replace(local_training=Alternating(SGD(RATE, batch_size=SIZE, epochs=1), personal_epochs=2))


def steps(data, task, variables, client, key, epochs, moves):
    """Epochs of SGD on one client, in which the layers in `moves` move."""
    index, mask = data.examples_of(client)
    count = int(mask.sum())
    order = np.asarray(shuffle_epochs(jax.random.split(key)[0], jnp.asarray(mask), epochs))[:, :count]

    def loss(params, own):
        return task.example_losses(task.logits({"params": params}, data.x[own]), data.y[own]).mean()

    gradient_of = jax.jit(jax.grad(loss))
    params = variables
    for epoch in order:
        for start in range(0, count, SIZE):
            gradient = gradient_of(params, np.asarray(index)[epoch[start : start + SIZE]])
            params = {
                name: jax.tree.map(lambda w, g: w - RATE * g, params[name], gradient[name]) if name in moves else layer
                for name, layer in params.items()
            }
    return params


def by_hand(data, history, train):
    """Rounds of federated averaging of the first layer, each client with a second layer of its own."""
    shared = jax.tree.map(np.asarray, TASK.init(key_for(jax.random.key(0), Purpose.MODEL), data.x)["params"])
    head = dict.fromkeys(range(5), shared["Dense_1"])
    for t, cohort in enumerate(history.selections[0]):
        trained = {}
        for i in map(int, cohort):
            key = key_for(jax.random.key(0), Purpose.TRAIN, t, i)
            trained[i] = train({"Dense_0": shared["Dense_0"], "Dense_1": head[i]}, i, key)
        n = np.array([data.num_examples[i] for i in trained], float)
        weights = n / n.sum()
        head |= {i: new["Dense_1"] for i, new in trained.items()}
        layers = [new["Dense_0"] for new in trained.values()]
        shared["Dense_0"] = jax.tree.map(
            lambda *leaves, w=weights: sum(a * np.asarray(leaf) for a, leaf in zip(w, leaves, strict=True)), *layers
        )
    return shared["Dense_0"], head


def own_accuracy(data, shared, head):
    """Mean over clients of the accuracy on their hold-out examples."""
    shares = []
    for i in range(5):
        index, mask = data.examples_of(i, holdout=True)
        own = np.asarray(index)[np.asarray(mask)]
        logits = TASK.logits({"params": {"Dense_0": shared, "Dense_1": head[i]}}, data.x[own])
        shares.append((np.asarray(logits).argmax(1) == data.y[own]).mean())
    return np.mean(shares)


@pytest.fixture(scope="module")
def data(clients):
    return jax.tree.map(jnp.asarray, clients.draw(0))


@pytest.fixture(scope="module")
def fedper(clients):
    return simulate(PER, clients)


def assert_same(history, data, train):
    shared, head = by_hand(data, history, train)
    assert_close = lambda a, b: np.testing.assert_allclose(a, b, **CLOSE)  # noqa: E731
    jax.tree.map(lambda a, b: assert_close(a[0], b), history.variables["params"]["Dense_0"], shared)
    for i in range(5):
        jax.tree.map(lambda a, b, i=i: assert_close(a[0, i], b), history.personal["params"]["Dense_1"], head[i])
    assert history["client_accuracy_mean"][0, -1] == pytest.approx(own_accuracy(data, shared, head), abs=1e-5)


def test_fedper_is_its_loop(fedper, data):
    """Arivazhagan et al., 2019, algorithms 1 and 2: both parts train, the base is averaged, the head stays."""
    assert_same(fedper, data, lambda params, i, key: steps(data, TASK, params, i, key, 2, ("Dense_0", "Dense_1")))


def test_fedrep_is_its_loop(clients, data):
    """Collins et al., 2021, algorithm 1: the head trains with the base fixed, then the base with the head fixed."""

    def train(params, i, key):
        first, second = jax.random.split(key)
        params = steps(data, TASK, params, i, first, 2, ("Dense_1",))
        return steps(data, TASK, params, i, second, 1, ("Dense_0",))

    assert_same(simulate(REP, clients), data, train)


def test_the_server_s_personal_parts_stay_as_drawn_and_are_not_sent(fedper, data):
    drawn = TASK.init(key_for(jax.random.key(0), Purpose.MODEL), data.x)["params"]["Dense_1"]
    jax.tree.map(
        np.testing.assert_array_equal, jax.tree.map(lambda a: a[0], fedper.variables["params"]["Dense_1"]), drawn
    )
    first_layer = 4 * (2 * 4 + 4)
    np.testing.assert_array_equal(fedper["bytes_up"], 2 * first_layer)
    np.testing.assert_array_equal(fedper["bytes_down"], 2 * first_layer)


def test_clients_that_never_trained_keep_what_was_drawn(clients):
    history = simulate(PER.replace(rounds=1), clients)
    kernel = history.personal["params"]["Dense_1"]["kernel"][0]
    drawn = history.variables["params"]["Dense_1"]["kernel"][0]
    moved = [i for i in range(5) if not np.array_equal(kernel[i], drawn)]
    assert moved == sorted(history.selections[0, 0])


@pytest.mark.parametrize(
    ("layout", "mesh"), [(Layout(clients=1, seeds="scan"), (1, 2)), (Layout(clients=2), None)], ids=["mesh", "blocks"]
)
def test_layouts_and_a_mesh_agree(layout, mesh, clients, fedper):
    other = simulate(PER, clients, layout=layout, mesh=mesh)
    np.testing.assert_array_equal(other.selections, fedper.selections)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **CLOSE),
        (other.personal, other.metrics),
        (fedper.personal, fedper.metrics),
    )


def test_signals_are_of_a_client_s_own_model(clients, data):
    """Power-of-choice of all clients takes those of the largest loss, each by its own head."""
    history = simulate(PER.replace(client_selection=PowerOfChoice(d=5), rounds=2), clients)
    before = simulate(PER.replace(client_selection=PowerOfChoice(d=5), rounds=1), clients)
    shared = jax.tree.map(lambda a: a[0], before.variables["params"]["Dense_0"])
    losses = []
    for i in range(5):
        head = jax.tree.map(lambda a, i=i: a[0, i], before.personal["params"]["Dense_1"])
        model = {"params": {"Dense_0": shared, "Dense_1": head}}
        losses.append(float(TASK.mean_loss(model, data.batch(*data.examples_of(i)))))
    assert set(history.selections[0, 1]) == set(np.argsort(losses)[-2:])


class Watching(Uniform):
    """Uniform cohorts, whose members report the loss of what they trained."""

    def signals(self):
        return Signals(trained=[Loss()])

    def observe(self, key, state, ctx, cohort, *, loss):
        jax.debug.callback(lambda *told: TOLD.append(told), cohort.client, loss)
        return state


TOLD = []


def test_signals_of_a_trained_model_are_of_both_parts_that_the_member_trained(clients, data):
    TOLD.clear()
    simulate(PER.replace(client_selection=Watching(), rounds=1), clients)
    jax.effects_barrier()
    seed = jax.random.key(0)
    drawn = TASK.init(key_for(seed, Purpose.MODEL), data.x)["params"]
    for i, loss in zip(*TOLD[0], strict=True):
        mine = steps(data, TASK, drawn, int(i), key_for(seed, Purpose.TRAIN, 0, int(i)), 2, ("Dense_0", "Dense_1"))
        expected = TASK.mean_loss({"params": mine}, data.batch(*data.examples_of(int(i))))
        assert float(loss) == pytest.approx(float(expected), rel=1e-4)


def test_noise_is_added_to_shared_parts_alone(clients, data):
    noisy = DPFedAvg(clip=1.0, noise_multiplier=1.0)
    history = simulate(PER.replace(aggregation=noisy, rounds=1, evaluate_clients_every=None), clients)
    drawn = TASK.init(key_for(jax.random.key(0), Purpose.MODEL), data.x)["params"]
    found = jax.tree.map(lambda leaf: leaf[0], history.variables["params"])
    jax.tree.map(np.testing.assert_array_equal, found["Dense_1"], drawn["Dense_1"])
    for one, other in zip(*map(jax.tree.leaves, (found["Dense_0"], drawn["Dense_0"])), strict=True):
        assert (one != other).all()


def test_corrections_leave_personal_parts_alone(clients, data):
    """A proximal term pulls the shared part to what was received; the head follows its own gradient."""
    trainer = SGD(RATE, batch_size=None, epochs=2)
    history = simulate(PER.replace(local_training=trainer, correction=Proximal(1 / RATE), rounds=1), clients)
    drawn = TASK.init(key_for(jax.random.key(0), Purpose.MODEL), data.x)["params"]
    for i in map(int, history.selections[0, 0]):
        batch, params = data.batch(*data.examples_of(i)), drawn
        for _ in range(2):
            gradient = jax.grad(lambda p, batch=batch: TASK.mean_loss({"params": p}, batch))(params)
            moved = jax.tree.map(lambda w, g: w - RATE * g, params, gradient)
            # μ η = 1: the term takes back what the step before moved
            back = jax.tree.map(lambda new, w, start: new - (w - start), moved, params, drawn)
            params = {"Dense_0": back["Dense_0"], "Dense_1": moved["Dense_1"]}
        head = jax.tree.map(lambda leaf, i=i: leaf[0, i], history.personal["params"]["Dense_1"])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), head, params["Dense_1"])


def test_fine_tuning_before_evaluation_is_training_that_is_thrown_away(clients, data):
    task = replace(TASK, personal=())
    tuned = simulate(PER.replace(task=task, fine_tuning=SGD(RATE, batch_size=SIZE, epochs=2)), clients)
    params, right = jax.tree.map(lambda a: a[0], tuned.variables["params"]), []
    for i in range(5):
        key = key_for(jax.random.key(0), Purpose.FINE_TUNE, ROUNDS - 1, i)
        mine = steps(data, task, params, i, key, 2, ("Dense_0", "Dense_1"))
        index, mask = data.examples_of(i, holdout=True)
        held = np.asarray(index)[np.asarray(mask)]
        right.append((np.asarray(task.logits({"params": mine}, data.x[held])).argmax(1) == data.y[held]).mean())
    assert tuned["client_accuracy_mean"][0, -1] == pytest.approx(np.mean(right), abs=1e-5)
    test = task.example_losses(task.logits({"params": params}, data.test_x), data.test_y).mean()
    assert tuned["loss"][0, -1] == pytest.approx(float(test), rel=1e-4)
    seen = 2 * data.num_examples[tuned.selections[0]].sum(1)
    np.testing.assert_allclose(tuned["client_flops"][0], 3 * task.flops(data.x) * seen)


@pytest.mark.parametrize(
    ("experiment", "match"),
    [
        (PER.replace(task=replace(TASK, personal=("Dense_7",))), "personal: 'Dense_7' is not a part of the model"),
        (PER.replace(task=replace(TASK, personal=("*",))), "is all of the model .*something must be shared"),
        (REP.replace(task=replace(TASK, personal=()), fine_tuning=SGD()), "no personal parts to alternate with"),
    ],
)
def test_what_cannot_be_kept_apart_is_refused(experiment, match, clients):
    with pytest.raises(ValueError, match=match):
        simulate(experiment, clients)


def test_a_client_without_hold_out_examples_is_not_judged(clients):
    drawn = clients.draw(0)
    some = np.array([1, 1, 0, 1, 1], drawn.num_holdout.dtype)
    history = simulate(PER.replace(rounds=1), drawn.replace(num_holdout=drawn.num_holdout * some))
    values = history.client_metrics["accuracy"][0, 0]
    np.testing.assert_array_equal(np.isnan(values), some == 0)
    assert history["client_accuracy_mean"][0, 0] == pytest.approx(np.nanmean(values))


def test_without_hold_out_examples_nobody_is_judged_but_clients_train(clients):
    without = replace(clients, holdout=0.0)
    with pytest.raises(ValueError, match="no client has any; give the federation a holdout"):
        simulate(PER, without)
    assert not simulate(PER.replace(evaluate_clients_every=None, rounds=1), without).client_metrics


def test_each_phase_of_alternating_training_loops_over_its_own_steps_alone(clients, monkeypatch):
    data = jax.tree.map(jnp.asarray, clients.draw(0))
    trainer = Alternating(SGD(RATE, batch_size=5), personal_epochs=10)
    task, bounds, train = REP.task, [], SGD.train

    def watched(self, *given, num_steps, **named):
        bounds.append(num_steps)
        return train(self, *given, num_steps=num_steps, **named)  # type: ignore[misc]

    monkeypatch.setattr(SGD, "train", watched)
    examples = Examples(data, *data.examples_of(0))
    plan = trainer.plan(examples.mask.sum(), data.longest, 0, 1)
    both = trainer.plan(jnp.int32(data.longest), data.longest, 0, 1).steps  # of the client with most examples
    trainer.train(jax.random.key(0), task, task.init(jax.random.key(0), data.x), examples, plan, num_steps=both)
    once = -(-data.longest // 5)
    assert [int(bound) for bound in bounds] == [10 * once, once]


def test_a_module_with_a_trained_part_in_it_is_not_in_evaluation():
    class Part(nn.Module):
        @nn.compact
        def __call__(self, x, *, train=False):
            scale = self.param("scale", nn.initializers.ones, ())
            return nn.Dense(3, name="head")(nn.Dropout(0.5, deterministic=not train)(scale * x))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, *, train=False):
            return Part(name="part")(nn.Dense(4, name="body")(x), train=train)

    task = Task(Net(), personal=("part/head",))
    shared, personal = task.split_personal(task.init(jax.random.key(0), jnp.zeros((1, 2))))
    head, body = fix(task, shared, personal), fix(task, personal, shared)
    assert set(head.frozen.names) == {"body", "part/scale"}
    assert body.frozen.names == ("part/head",)
    outputs = [head.logits(personal, jnp.ones((1, 2)), train=True, key=jax.random.key(i)) for i in range(2)]
    assert not np.array_equal(*outputs), "dropout is on while the head is trained"


def test_what_members_that_returned_keep_is_replaced_and_nothing_else():
    client, mask = jnp.array([3, 0, PAD_CLIENT, 1]), jnp.array([True, False, False, True])
    states = {"a": jnp.arange(5.0), "b": (jnp.zeros((5, 2), int),)}
    new = {"a": jnp.array([10.0, 11.0, 12.0, 13.0]), "b": (jnp.arange(1, 9).reshape(4, 2),)}
    kept = keep_returned(states, Cohort(client, mask, jnp.ones(4)), new)
    assert kept["a"].tolist() == [0.0, 13.0, 2.0, 10.0, 4.0]
    assert kept["b"][0].tolist() == [[0, 0], [7, 8], [0, 0], [1, 2], [0, 0]]
    assert keep_returned((), Cohort(client, mask, jnp.ones(4)), ()) == ()
