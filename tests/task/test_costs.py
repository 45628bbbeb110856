"""What a client is charged for training is what XLA counts for the gradient."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Task, models
from fedjax_sel.task.convolutions import list_native_convolutions
from fedjax_sel.task.costs import count_flops
from fedjax_sel.types import Batch

BATCH, CLASSES = 1, 10
"""One example, since XLA counts a loop's body once and convolutions of large batches loop over blocks."""
TOLERANCE = {"transformer": 0.08, "logistic": 0.1}
"""Where it is not 0.05: tokens have no gradient; normalising inputs, a tenth of a linear model, has none either."""

CHARGED = {"logistic": 1.65, "mlp": 1.51, "transformer": 1.07, "cnn": 1.06, "vit": 1.04, "mobilenet": 0.96}
CHARGED["efficientnet"] = 0.96
"""What training is charged, as a multiple of what XLA counts for a step, where it is not 1; as in bill.md."""


def charge_and_count(name, argnums):
    """Returns what an example's training is charged, and XLA's count of its loss and gradient by some arguments."""
    tokens = name == "transformer"
    task = Task(models.load(name)(classes=CLASSES), raw=tokens)
    x = jnp.zeros((BATCH, 16), jnp.int32) if tokens else jnp.zeros((BATCH, 32, 32, 3))
    batch = Batch(x, jnp.arange(BATCH), jnp.ones(BATCH, bool))
    trained, statistics = task.split(jax.eval_shape(lambda: task.init(jax.random.key(0), x)))

    def loss(trained, x, statistics):
        return task.mean_loss(task.join(trained, statistics), batch.replace(x=x))

    step = jax.value_and_grad(loss, argnums=0 if tokens else argnums)
    costs = task.costs(x)
    charged = BATCH * costs.flops * (1 + costs.backward)
    return charged, jax.jit(step).lower(trained, x, statistics).cost_analysis()["flops"]


@pytest.mark.parametrize("name", models.available())
def test_the_bill_of_an_example_is_the_count_of_the_gradient(name):
    """XLA's count for the loss and its gradient, by the variables and by the inputs, of a batch.

    A backward pass at twice the forward pass holds the gradient of each layer's inputs, those of the first included.
    """
    charged, counted = charge_and_count(name, (0, 1))
    assert charged == pytest.approx(counted, rel=TOLERANCE.get(name, 0.05))


@pytest.mark.parametrize("name", models.available())
def test_by_how_much_training_is_charged_more_than_a_step_counts_is_known(name):
    """A step does not compute the gradient of its examples, which is a third of a model whose first layer is most."""
    charged, counted = charge_and_count(name, 0)
    assert charged / counted == pytest.approx(CHARGED.get(name, 1.0), rel=0.03)


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.RNN(nn.SimpleCell(16))(x)[:, -1])


@pytest.mark.parametrize("places", [1, 10, 100])
def test_a_loop_over_places_counts_with_all_its_turns(places):
    """By hand: matrix products of 8 x 16 and 16 x 16 a place, and 16 x 2 at the end, two operations each."""
    x = jnp.zeros((1, places, 8))
    by_hand = 2 * (places * (8 * 16 + 16 * 16) + 16 * 2)
    assert Task(Recurrent()).flops(x) == pytest.approx(by_hand, rel=0.08)


def test_loops_in_loops_multiply():
    def row(carry, _):
        return jax.lax.fori_loop(0, 5, lambda _, c: c @ jnp.ones((4, 4)), carry), None

    flops, _ = count_flops(lambda x: jax.lax.scan(row, x, length=3)[0], jnp.zeros((1, 4)))
    assert flops == pytest.approx(3 * 5 * 2 * 16, rel=0.2)


def test_operations_are_counted_for_the_cpu_whatever_the_device(monkeypatch):
    """JAX counts those of a lowered program for its CPU alone, and returns nothing for a GPU; here, the second CPU."""
    cpu, lower = jax.devices("cpu")[1], jax.stages.Traced.lower
    lowered_for = []

    def note(traced, *args, **kwargs):
        lowered_for.append(jnp.zeros(()).devices())
        return lower(traced, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Traced, "lower", note)
    monkeypatch.setattr(jax, "local_devices", lambda backend: {"cpu": [cpu]}[backend])
    count_flops(jnp.vdot, jnp.zeros(3), jnp.ones(3))
    assert lowered_for == [{cpu}]


def test_without_a_cpu_the_remedy_is_named(monkeypatch):
    def refuse(backend):
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", refuse)
    with pytest.raises(ValueError, match=r"JAX has no CPU \(Unknown backend cpu\).*JAX_PLATFORMS=cuda,cpu"):
        count_flops(jnp.vdot, jnp.zeros(3), jnp.ones(3))


@pytest.mark.parametrize("unroll", [1, 2, 3, 4, 8, 20])
@pytest.mark.parametrize("turns", [0, 1, 7, 8])
def test_a_loop_counts_all_its_turns_however_it_is_unrolled(turns, unroll):
    def go(x):
        return jax.lax.scan(lambda c, _: (c @ jnp.ones((50, 50)), None), x, length=turns, unroll=unroll)[0]

    assert count_flops(go, jnp.ones(50))[0] == pytest.approx(turns * 2 * 50 * 50, abs=10)


def test_of_branches_the_dearest_counts_with_its_loops():
    def turn_of(turns):
        return lambda x: jax.lax.fori_loop(0, turns, lambda _, c: c @ jnp.ones((50, 50)), x)

    flops, _ = count_flops(lambda x: jax.lax.cond(x[0] > 0, turn_of(8), turn_of(7), x), jnp.ones(50))
    assert flops == pytest.approx(8 * 2 * 50 * 50, abs=20)


class Deep(nn.Module):
    """Layers of 64, 128 and 128 to 200 classes."""

    @nn.compact
    def __call__(self, x, *, train=False):
        for i, width in enumerate((128, 128)):
            x = nn.relu(nn.Dense(width, name=f"layer{i}")(x))
        return nn.Dense(200, name="head")(x)


@pytest.mark.parametrize(("frozen", "trained"), [(("layer0", "layer1"), (2,)), (("layer0",), (1, 2))])
def test_the_backward_pass_of_the_last_layers_is_theirs_by_hand(frozen, trained):
    """Each layer's products of weights and, but for the first one that is trained, of inputs."""
    x, each = jnp.zeros((1, 64)), np.array([64 * 128, 128 * 128, 128 * 200])
    some = sum(each[list(trained)]) + sum(each[list(trained[1:])])
    every = sum(each) + sum(each[1:])
    task = Task(Deep()).fine_tune(x, frozen=frozen)
    assert task.backward(x) == pytest.approx(2 * some / every, rel=0.02)


WIDTH = 4


class Sized(nn.Module):
    """A model whose size is a global, as in a notebook."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(3)(nn.Conv(WIDTH, (3, 3))(x).mean((1, 2)) if WIDTH > 4 else nn.Dense(WIDTH)(x[:, 0, 0]))


def test_a_global_that_the_model_reads_counts_again_once_it_is_changed(monkeypatch):
    task, x = Task(Sized()), jnp.zeros((1, 6, 6, 1))
    assert task.parameters(x) == (1 * 4 + 4) + (4 * 3 + 3)
    assert list_native_convolutions(task, x) == []
    monkeypatch.setitem(globals(), "WIDTH", 5)
    assert Task(Sized()).parameters(x) == task.parameters(x) == (9 * 5 + 5) + (5 * 3 + 3)
    assert list_native_convolutions(task, x) == ["Conv_0"]
