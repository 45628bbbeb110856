"""Models of anybody's: Linen modules with other arguments, NNX modules and functions train as the library's own do."""

import warnings
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fedjax_sel import Experiment, Federation, Task, models, partition, simulate
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.task.convolutions import list_native_convolutions
from fedjax_sel.types import Batch

X = np.asarray(np.random.default_rng(0).normal(size=(6, 2)), np.float32)


def waves(key, shape, dtype=jnp.float32):
    """Initial values that depend on the shape alone, so that every library begins alike."""
    return jnp.cos(jnp.arange(np.prod(shape), dtype=dtype)).reshape(shape) / shape[0]


class Plain(nn.Module):
    """Takes examples, and nothing else."""

    classes: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.classes, kernel_init=waves)(nn.tanh(nn.Dense(5, kernel_init=waves)(x)))


class Same(nnx.Module):
    """The same in NNX, its layers in a list."""

    def __init__(self, *, rngs):
        sizes = ((2, 5), (5, 3))
        self.layers = nnx.List([nnx.Linear(i, o, kernel_init=waves, rngs=rngs) for i, o in sizes])

    def __call__(self, x):
        return self.layers[1](jnp.tanh(self.layers[0](x)))


def functions():
    """The same as two functions."""

    def init(key, x):
        sizes = ((x.shape[-1], 5), (5, 3))
        return {str(i): {"w": waves(key, size), "b": jnp.zeros(size[1])} for i, size in enumerate(sizes)}

    def apply(variables, x):
        one, two = variables["0"], variables["1"]
        return jnp.tanh(x @ one["w"] + one["b"][None]) @ two["w"] + two["b"][None]

    return models.from_functions(init, apply)


@pytest.fixture(scope="module")
def blobs_clients():
    from fedjax_sel import dataset

    rng = np.random.default_rng(7)
    y = np.arange(90) % 3
    x = rng.normal(size=(90, 2)) + 2.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    return Federation(dataset("blobs", x.astype(np.float32), y, test=0.2), partition.Iid(clients=5))


@pytest.fixture(scope="module")
def of_linen(blobs_clients):
    return run(Plain(), blobs_clients)


def run(model, clients):
    experiment = Experiment(Task(model), local_training=SGD(0.2, batch_size=4), cohort_size=2, rounds=3)
    return simulate(experiment, clients, seeds=2)


@pytest.mark.parametrize("make", [lambda: models.from_nnx(lambda rngs: Same(rngs=rngs)), functions])
def test_other_libraries_models_train_as_the_same_linen_module_does(make, blobs_clients, of_linen):
    history = run(make(), blobs_clients)
    for metric in ("loss", "accuracy", "training_loss", "bytes", "flops"):
        np.testing.assert_allclose(history[metric], of_linen[metric], rtol=1e-5, atol=1e-6, err_msg=metric)
    assert np.ptp(history["loss"]) > 0.01


class Told(nn.Module):
    """Learns by an argument of this name whether it trains."""

    name_of_mode: str = "train"

    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


class ToldOtherwise(nn.Module):
    """As `Told`, the other way round."""

    @nn.compact
    def __call__(self, x, deterministic=True):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=deterministic)(x))


def test_a_module_may_call_training_deterministic():
    one, other = Task(Told()), Task(ToldOtherwise())
    variables, key = one.init(jax.random.key(0), X), jax.random.key(1)
    trained = one.logits(variables, X, train=True, key=key)
    np.testing.assert_array_equal(other.logits(variables, X, train=True, key=key), trained)
    np.testing.assert_array_equal(other.logits(variables, X), one.logits(variables, X))
    assert not np.allclose(trained, one.logits(variables, X))


class Normed(nn.Module):
    """Hands a mask to its normalisation, or does not know of one."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=not train, momentum=0.5)(x))


def test_padding_stays_out_of_the_statistics_of_a_module_without_mask():
    task, mask = Task(Normed()), np.array([True] * 4 + [False] * 2)
    batch = Batch(jnp.asarray(X), jnp.zeros(6, jnp.int32), jnp.asarray(mask))
    losses, moved = task.training_losses(task.init(jax.random.key(0), X), batch)
    np.testing.assert_allclose(moved["batch_stats"]["BatchNorm_0"]["mean"], 0.5 * X[:4].mean(0), rtol=1e-5)
    np.testing.assert_allclose(moved["batch_stats"]["BatchNorm_0"]["var"], 0.5 + 0.5 * X[:4].var(0), rtol=1e-5)
    assert (np.asarray(losses) > 0).tolist() == mask.tolist()


class NormedSame(nnx.Module):
    """`Normed` in NNX, which takes a mask."""

    def __init__(self, *, rngs):
        self.norm = nnx.BatchNorm(2, momentum=0.5, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(2, 3, rngs=rngs)

    def __call__(self, x, mask=None):
        mask = None if mask is None else jnp.broadcast_to(mask[:, None], x.shape)
        return self.head(self.drop(self.norm(x, mask=mask)))


def test_statistics_and_dropout_of_an_nnx_module():
    task, mask = Task(models.from_nnx(lambda rngs: NormedSame(rngs=rngs))), np.array([True] * 4 + [False] * 2)
    variables = task.init(jax.random.key(0), X)
    batch = Batch(jnp.asarray(X), jnp.zeros(6, jnp.int32), jnp.asarray(mask))
    losses, moved = task.training_losses(variables, batch, jax.random.key(1))
    np.testing.assert_allclose(moved["batch_stats"]["norm"]["mean"], 0.5 * X[:4].mean(0), rtol=1e-5)
    np.testing.assert_allclose(moved["batch_stats"]["norm"]["var"], 0.5 + 0.5 * X[:4].var(0), rtol=1e-5)
    assert not np.allclose(losses, task.training_losses(variables, batch, jax.random.key(2))[0])
    np.testing.assert_array_equal(task.logits(variables, X), task.logits(variables, X))


def test_whole_numbers_reach_an_embedding_as_they_are():
    class Bag(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return nn.Dense(2)(nn.Embed(50, 4)(tokens).mean(1))

    task, tokens = Task(Bag(), raw=True), np.array([[1, 40, 3]], np.int32)
    variables = task.init(jax.random.key(0), tokens)
    assert task.parameters(tokens) == 50 * 4 + 4 * 2 + 2
    assert task.logits(variables, tokens).shape == (1, 2)


def test_a_convolution_of_an_nnx_module_is_warned_of():
    def make(**options):
        return lambda rngs: nnx.Sequential(nnx.Conv(1, 2, (3, 3), rngs=rngs, **options), lambda x: x.mean((1, 2)))

    images = np.zeros((1, 8, 8, 1), np.float32)
    assert list_native_convolutions(Task(models.from_nnx(make())), images) == ["convolution 1"]
    fast = Task(models.from_nnx(make(conv_general_dilated=models.fast_convolution)))
    assert list_native_convolutions(fast, images) == []


def test_the_convolution_within_fast_convolution_is_not_warned_of():
    """With this many channels, on a device that is one core, it is XLA's own."""
    layer = partial(nnx.Conv, 256, 256, (3, 3), conv_general_dilated=models.fast_convolution)
    wide = models.from_nnx(lambda rngs: nnx.Sequential(layer(rngs=rngs), lambda x: x.mean((1, 2))))
    assert list_native_convolutions(Task(wide), np.zeros((1, 16, 16, 256), np.float32)) == []


def test_convolutions_are_counted_as_often_as_they_are_called_and_transposed_ones_are_not():
    def init(key, x):
        return jnp.ones((3, 3, 1, 1))

    @jax.jit
    def convolve(kernel, x):
        return jax.lax.conv(x, kernel.transpose(3, 2, 0, 1), (1, 1), "SAME")

    def apply(kernel, x, *, train=False):
        x = x.transpose(0, 3, 1, 2)
        wide = jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=("NCHW", "HWIO", "NCHW"))
        return convolve(kernel, convolve(kernel, wide)).mean((2, 3))

    found = list_native_convolutions(Task(models.from_functions(init, apply)), np.zeros((1, 8, 8, 1), np.float32))
    assert found == ["convolution 1", "convolution 2"]


def test_sequential_modules_are_called_as_their_first_layer():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = Task(nn.Sequential((nn.Dense(4), nn.relu, nn.Dense(3))))
    assert task.parameters(X) == 2 * 4 + 4 + 4 * 3 + 3
    assert Task(models.fast_convolutions(MLP(classes=3))).outputs(X) == (1, 3)


class TwoInputs(nn.Module):
    def __call__(self, x, attention):
        return x


def test_what_cannot_be_called_is_told_what_helps():
    with pytest.raises(ValueError, match=r"TwoInputs.__call__.*missing.*'attention'.*from_functions"):
        Task(TwoInputs())
    with pytest.raises(ValueError, match="give it tuples instead of lists"):
        Task(nn.Sequential([nn.Dense(4)]))
    with pytest.raises(ValueError, match=r"a function of nnx\.Rngs"):
        models.from_nnx(Same(rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match=r"not an nnx\.Module"):
        models.from_nnx(lambda rngs: Plain())
    with pytest.raises(ValueError, match=r"apply is .*must be a function apply\(variables, x\)"):
        models.from_functions(lambda key, x: {}, lambda x: x)

    class NoMask(nnx.Module):
        def __init__(self, *, rngs):
            self.norm = nnx.BatchNorm(2, rngs=rngs)

        def __call__(self, x):
            return self.norm(x)

    with pytest.raises(ValueError, match="takes no mask; add mask=None"):
        models.from_nnx(lambda rngs: NoMask(rngs=rngs))


class Features(nn.Module):
    """Has a random constant, counts the steps of its training, and reports."""

    @nn.compact
    def __call__(self, x, *, train=False):
        draw = nn.initializers.normal(1.0)
        constant = self.variable("constants", "w", lambda: draw(self.make_rng("params"), (2, 8)))
        steps = self.variable("counter", "steps", lambda: jnp.zeros(()))
        if train:
            steps.value = steps.value + 1
        self.sow("reports", "mean", x.mean())
        return nn.Dense(3)(jnp.cos(x @ constant.value))


class NNXFeatures(nnx.Module):
    """The same in NNX, without reports."""

    def __init__(self, *, rngs):
        self.w, self.steps = nnx.Variable(jax.random.normal(rngs.params(), (2, 8))), nnx.Variable(jnp.zeros(()))
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x, *, train=False):
        if train:
            self.steps.set_value(self.steps.get_value() + 1)
        return self.head(jnp.cos(x @ self.w.get_value()))


@pytest.mark.parametrize("model", [Features(), models.from_nnx(lambda rngs: NNXFeatures(rngs=rngs))])
def test_what_is_no_parameter_is_not_trained_but_kept(model, blobs):
    """Two batches an epoch, one epoch a round: each client makes as many steps, whose mean the server takes."""
    task, data = Task.on(model, blobs), Federation(blobs, partition.Iid(clients=4))
    training = SGD(learning_rate=0.5, weight_decay=0.1, batch_size=27, epochs=1)
    history = simulate(Experiment(task, cohort_size=4, rounds=3, local_training=training), data, seeds=[5])
    begun, ended = task.init(jax.random.key(5), blobs.x), jax.tree.map(lambda leaf: leaf[0], history.variables)
    flat = {jax.tree_util.keystr(path, simple=True): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(ended)}
    (constant,) = (leaf for leaf in flat.values() if leaf.shape == (2, 8))
    assert set(ended) == set(begun) - {"reports"}
    (counted,) = (leaf for leaf in flat.values() if leaf.shape == ())
    assert counted == pytest.approx(6.0)
    assert np.std(constant) > 0.5
    again = simulate(Experiment(task, cohort_size=4, rounds=1, local_training=training), data, seeds=[5]).variables
    np.testing.assert_array_equal(
        constant, next(leaf[0] for leaf in jax.tree.leaves(again) if leaf.shape == (1, 2, 8)), "as it was drawn"
    )


def test_a_constant_of_whole_numbers_is_refused(blobs):
    class Places(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(x[:, self.variable("constants", "order", lambda: jnp.arange(2)).value])

    with pytest.raises(ValueError, match=r"'order'\] is int32; what clients send must be floats"):
        Task.on(Places(), blobs).init(jax.random.key(0), blobs.x)


class Mixed(nnx.Module):
    """Has what is no float beside its layer."""

    def __init__(self, *, rngs):
        self.order, self.scale, self.step = np.arange(2), jnp.ones(2), nnx.Variable(jnp.arange(2))
        self.head = nnx.Linear(2, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.scale[None] * x[:, self.order][:, self.step.get_value()])


def test_arrays_and_whole_numbers_of_an_nnx_module_are_made_anew(blobs):
    task = Task.on(models.from_nnx(lambda rngs: Mixed(rngs=rngs)), blobs)
    variables = task.init(jax.random.key(0), blobs.x)
    assert set(variables) == {"params"}
    assert task.logits(variables, blobs.x[:4]).shape == (4, 3)


def test_variates_are_sent_without_what_is_no_parameter(blobs):
    """`Features` has 8 x 3 + 3 parameters, 16 constants and a count of steps; each number has 4 bytes."""
    task, data = Task.on(Features(), blobs), Federation(blobs, partition.Iid(clients=4))
    run = Experiment(task, cohort_size=2, rounds=1, local_training=SGD(0.1, batch_size=27))
    plain = simulate(run, data)
    scaffold = simulate(run.replace(correction=Scaffold()), data)
    for name in ("bytes_up", "bytes_down"):
        assert plain[name].tolist() == [[2 * 4 * (27 + 17)]]
        assert scaffold[name].tolist() == [[2 * 4 * (27 + 17 + 27)]]


def test_an_argument_that_looks_like_a_mode_is_told_whatever_the_model_is_made_of():
    class Drops(nnx.Module):
        def __init__(self, rngs):
            self.layer = nnx.Linear(2, 3, rngs=rngs)

        def __call__(self, x, do_train=False):
            return self.layer(x)

    with pytest.warns(UserWarning, match=r"from_nnx: Drops.__call__ takes do_train, which is False in training, too"):
        models.from_nnx(lambda rngs: Drops(rngs))
    with pytest.warns(UserWarning, match="from_functions: apply takes do_train, which is False in training, too"):
        models.from_functions(lambda key, x: {}, lambda variables, x, do_train=False: x)


class Noisy(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.Dropout(0.5, deterministic=not train)(x)


def test_a_later_layer_of_a_container_that_is_not_told_whether_it_trains_is_told_of():
    with pytest.warns(UserWarning, match=r"Sequential passes .* layer 1, Noisy, keeps its default train in training"):
        Task(nn.Sequential((nn.Dense(3), Noisy())))
    with warnings.catch_warnings(action="error"):
        Task(nn.Sequential((Noisy(), nn.Dense(3), nn.Dropout(0.5, deterministic=True))))


def test_batch_statistics_by_flaxs_own_argument_are_those_of_training():
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, use_running_average: bool = True):
            return nn.Dense(3)(nn.BatchNorm(use_running_average=use_running_average)(x))

    task, batch = Task(Normed()), Batch(5 + jnp.zeros((4, 2)), jnp.zeros(4, int), jnp.ones(4, bool))
    variables = task.init(jax.random.key(0), batch.x)
    _, after = task.training_losses(variables, batch, jax.random.key(1))
    np.testing.assert_allclose(jax.tree.leaves(after["batch_stats"])[0], 0.01 * 5, rtol=1e-5)


@pytest.mark.parametrize("first", [nn.BatchNorm(use_running_average=False), nn.Dropout(0.5, deterministic=True)])
def test_a_layer_of_flax_that_is_told_by_its_field_is_not_told_again(first):
    task = Task(nn.Sequential((first, nn.Dense(3))))
    batch = Batch(jnp.ones((4, 2)), jnp.zeros(4, int), jnp.ones(4, bool))
    losses, _ = task.training_losses(task.init(jax.random.key(0), batch.x), batch, jax.random.key(1))
    assert np.isfinite(losses).all()


def test_outputs_of_16_bits_are_widened():
    task = Task(nn.Dense(3, dtype=jnp.bfloat16))
    variables = task.init(jax.random.key(0), jnp.zeros((1, 2)))
    assert task.logits(variables, jnp.ones((1, 2))).dtype == jnp.float32
    batch = Batch(jnp.ones((1, 2)), jnp.zeros(1, int), jnp.ones(1, bool))
    assert task.training_losses(variables, batch, jax.random.key(1))[0].dtype == jnp.float32


def test_a_function_with_any_options_is_told_whether_it_trains():
    model = models.from_functions(
        lambda key, x: {"w": jnp.ones(())}, lambda variables, x, **options: variables["w"] * x + 10.0 * options["train"]
    )
    task, x = Task(model), jnp.ones((2, 3))
    variables = task.init(jax.random.key(0), x)
    assert float(task.logits(variables, x)[0, 0]) == 1
    assert float(task.logits(variables, x, train=True, key=jax.random.key(1))[0, 0]) == 11
