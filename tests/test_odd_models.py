"""Models whose variables have lists, tuples, odd names or few bits: trained, saved, opened, frozen and exported."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import FrozenDict
from rich.console import Console

import fedjax_sel as fs
from fedjax_sel import aggregation, client_selection, correction, models
from fedjax_sel import config as configuration
from fedjax_sel.aggregation.krum import krum_scores
from fedjax_sel.local_training import SGD
from fedjax_sel.runs.execute import execute
from fedjax_sel.types import Batch, Update

Named = namedtuple("Named", "w b")
IRIS = fs.load("iris")
CLIENTS = fs.Federation(IRIS, fs.partition.Iid(clients=10))

OWN = """
import jax
import jax.numpy as jnp
from collections import namedtuple
from flax import linen as nn
from fedjax_sel import models

Layer = namedtuple("Layer", "w b")


class Dotted(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="layers.1")(nn.relu(nn.Dense(5, name="layers.0")(x)))


def draw(key, *shape):
    return 0.1 * jax.random.normal(key, shape)


def start_haiku(key, x):
    return {"mlp/~/linear_0": {"w": draw(key, x.shape[-1], 5)}, "mlp/~/linear_1": {"w": draw(key, 5, 3)}}


def Haiku():
    return models.from_functions(
        start_haiku, lambda v, x: jnp.tanh(x @ v["mlp/~/linear_0"]["w"]) @ v["mlp/~/linear_1"]["w"]
    )


def start_stax(key, x):
    return [(draw(key, x.shape[-1], 5), jnp.zeros(5)), (), Layer(draw(key, 5, 3), jnp.zeros(3)), {7: jnp.ones(1)}, ()]


def apply_stax(v, x, *, train, key):
    first, relu, last, scale, nothing = v
    assert relu == nothing == () and isinstance(v, list)
    return (jnp.tanh(x @ first[0] + first[1][None]) @ last.w + last.b[None]) * scale[7][None]


def Stax():
    return models.from_functions(start_stax, apply_stax)


def Array():
    return models.from_functions(lambda key, x: draw(key, x.shape[-1], 3), lambda v, x: x @ v)
"""
PARTS = {"Dotted": "layers.0", "Haiku": "mlp/~/linear_0", "Stax": "0", "Array": None}


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture
def own(tmp_path):
    (tmp_path / "odd_models.py").write_text(OWN)
    return tmp_path / "odd_models.py"


@pytest.mark.parametrize("name", PARTS)
def test_a_run_is_opened_predicts_and_is_exported(name, own, tmp_path):
    asked = {"data": "iris", "model": f"{own}:{name}", "partition": {"clients": 10}, "cohort_size": 3, "seeds": 2}

    def run(place, rounds):
        configured = configuration.resolve({**asked, "rounds": rounds, "chunk": 2})
        return execute("mine", configured, tmp_path / place, figures=False, console=Console(quiet=True))

    history = run("run", 4)
    opened, data = fs.open(tmp_path / "run"), fs.open(tmp_path / "run").build().data
    for i, seed in enumerate(history.seeds):
        drawn = data.draw(seed)
        share = (opened.predict(np.asarray(drawn.test_x), seed) == np.asarray(drawn.test_y)).mean()
        assert share == pytest.approx(history["accuracy"][i, -1], abs=1e-6)
    same(opened.variables, jax.tree.map(np.asarray, history.variables))
    for format in ("npz", "safetensors", "orbax"):
        same(fs.load_variables(opened.export(format=format)), opened.model())
    run("longer", 2)
    longer, whole = run("longer", 6), run("whole", 6)
    assert longer.about["resumed_at"] == 2
    same(longer.variables, whole.variables)
    if (part := PARTS[name]) is not None:
        tuned = opened.problem.task.fine_tune(IRIS.x, pretrained=opened.model(), frozen=[part])
        assert list(tuned.frozen.variables["params"]) == [part]
        left = tuned.init(jax.random.key(0), IRIS.x[:1])
        assert part not in left["params"]
        assert tuned.parameters(IRIS.x[:1]) < opened.problem.task.parameters(IRIS.x[:1])


def test_a_list_follows_the_code_as_it_is_now():
    """The number of layers is a global of the user's, which changes in a notebook."""
    layers = [2]

    def start(key, x):
        return [jnp.eye(x.shape[-1])] * layers[0] + [jnp.zeros((x.shape[-1], 3))]

    def apply(v, x):
        assert len(v) == layers[0] + 1
        for w in v:
            x = x @ w
        return x

    task = fs.Task.on(models.from_functions(start, apply), IRIS)
    for layers[0] in (2, 1, 3):
        history = fs.simulate(fs.Experiment(task, cohort_size=3, rounds=1), CLIENTS)
        assert len(history.variables["params"]) == layers[0] + 1


def test_variables_come_back_as_they_were_made():
    """None, for no bias, and Flax's frozen dictionaries, whose methods some code calls."""
    made = []

    def start(key, x):
        one = {"w": jnp.zeros((x.shape[-1], 3)), "bias": None, "more": [(), None, {"b": jnp.zeros(3)}]}
        made[:] = [FrozenDict({"a": one, "n": Named(jnp.ones(1), None)})]
        return made[0]

    def apply(v, x):
        assert jax.tree.structure(v) == jax.tree.structure(made[0])
        one = v.unfreeze()["a"]
        assert one["more"][:2] == [(), one["bias"]] == [(), v["n"].b] == [(), None]
        return x @ one["w"] + one["more"][2]["b"][None]

    task = fs.Task.on(models.from_functions(start, apply), IRIS)
    assert fs.simulate(fs.Experiment(task, cohort_size=3, rounds=1), CLIENTS)["accuracy"][0, -1] > 0.4


def test_what_is_not_nested_dictionaries_is_not_written(tmp_path):
    for given, where in (({"a": [np.ones(2)]}, r"\['params'\]\['a'\]\[0\]"), ({0: np.ones(2)}, r"\['params'\]\[0\]")):
        for format in ("npz", "safetensors", "orbax"):
            with pytest.raises(ValueError, match=rf"variables{where} is not in nested dictionaries"):
                fs.save_variables(tmp_path / f"model.{format}", {"params": given})
    with pytest.raises(ValueError, match=r"model.orbax cannot be written as orbax \(.*zero size"):
        fs.save_variables(tmp_path / "model.orbax", {"params": {"a": np.ones((0, 2))}})
    assert not (tmp_path / "model.orbax").exists()


class Half(nn.Module):
    """Half of its parameters have 16 bits."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(8, param_dtype=jnp.bfloat16)(x)))


@pytest.mark.parametrize(
    "part",
    [
        *({"aggregation": aggregation.load(name)()} for name in aggregation.available() if name != "dp_fedavg"),
        *({"correction": correction.load(name)()} for name in correction.available()),
        {"correction": correction.Scaffold(applied="after_momentum")},
        {"correction": correction.load("proximal")(np.float64(0.5))},
        {"local_training": SGD(0.1, momentum=np.float32(0.9), weight_decay=np.float64(0.01))},
        *({"client_selection": client_selection.load(name)()} for name in ("fed_entropy", "optimal_sampling")),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:krum. f is")
def test_parameters_of_16_bits_train_with_every_strategy(part):
    task = fs.Task.on(Half(), IRIS)
    history = fs.simulate(fs.Experiment(task, cohort_size=3, rounds=2, **part), CLIENTS)
    kernels = [history.variables["params"][f"Dense_{i}"]["kernel"].dtype for i in (0, 1)]
    assert kernels == [jnp.float32, jnp.bfloat16]
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("clients", [None, 1, 4, 100])
def test_updates_of_16_bits_are_added_up_in_32_in_every_layout(clients):
    """Sums of 200 equal numbers in 16 bits stop growing."""
    x, y = np.ones((200, 1), np.float32), np.tile(np.float32([[2.0], [2.1]]), (100, 1))
    data = fs.dataset("t", x, y, test=(x[:2], y[:2]), targets="continuous")

    def train(dtype):
        start, apply = lambda key, x: {"w": jnp.zeros((1, 1), dtype)}, lambda v, x: x @ v["w"].astype(jnp.float32)
        task = fs.Task.on(models.from_functions(start, apply), data)
        experiment = fs.Experiment(task, cohort_size=200, rounds=1, local_training=SGD(0.01, batch_size=1, epochs=1))
        federation = fs.Federation(data, fs.partition.Iid(clients=200))
        history = fs.simulate(experiment, federation, layout=fs.Layout(clients=clients))
        return float(history.variables["params"]["w"][0, 0, 0])

    assert train(jnp.bfloat16) == pytest.approx(train(jnp.float32), rel=0.005)


def test_norms_and_noise_of_16_bits_are_added_up_in_32():
    """In 16 bits a sum of ones stops at 256."""
    delta, one = {"w": jnp.ones(1000, jnp.bfloat16)}, jnp.ones((), int)
    update = Update(delta, one, one, one, jnp.ones(()), jnp.ones(()))
    assert fs.signals.UpdateNorm().measure(update, None) == pytest.approx(1000**0.5, rel=1e-3)
    spread = {"w": jnp.ones((8, 1003), jnp.bfloat16) * jnp.array([[0, 1, 2, 3, 4, 5, 6, 40]], jnp.bfloat16).T}
    np.testing.assert_allclose(krum_scores(spread, jnp.ones(8, bool), 4)[1], 2006, rtol=1e-4)

    start, apply = lambda key, x: {"w": jnp.zeros((1, 1), jnp.bfloat16)}, lambda v, x: x @ v["w"].astype(jnp.float32)
    x, y = np.ones((400, 1), np.float32), np.float32([[-0.5, -0.51]] * 200).reshape(400, 1)
    data = fs.dataset("t", x, y, test=(x[:2], y[:2]), targets="continuous")
    task, batch = (
        fs.Task.on(models.from_functions(start, apply), data),
        Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(400, bool)),
    )
    variables = task.init(jax.random.key(0), x)
    noise = fs.signals.GradientNoise(1).measure(task, variables, batch, jax.random.key(0))
    assert noise == pytest.approx(0, abs=1e-2), "all minibatches are alike"


def test_16_bits_are_too_few_for_clipped_updates():
    experiment = fs.Experiment(fs.Task.on(Half(), IRIS), aggregation=aggregation.DPFedAvg(), cohort_size=3, rounds=1)
    with pytest.raises(ValueError, match=r"has parameters of type bfloat16, .* the clipping norm; use float32"):
        fs.simulate(experiment, CLIENTS)
