"""Mistakes in users' own parts that would pass in silence: they are refused, or make no difference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from flax import nnx

import fedjax_sel as fs
from fedjax_sel.client_selection import top_m
from fedjax_sel.client_selection.gradient_norm import GradientNorm
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.data.own import from_frame
from fedjax_sel.devices.availability import Function
from fedjax_sel.devices.laws import LogNormal
from fedjax_sel.engine.settings import REFUSED
from fedjax_sel.local_training.optax import Optax
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.mistakes import OwnCodeError
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task.metrics import MeanOf

X, Y = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32), np.arange(60) % 3
DATA = fs.dataset("noise", X, Y, test=0.2)
CLIENTS = fs.Federation(DATA, fs.partition.Iid(clients=6))
TASK = fs.Task.on(LogisticRegression(classes=3), DATA)


def run(task=TASK, clients=CLIENTS, seeds=1, **changes):
    return fs.simulate(fs.Experiment(task, **({"cohort_size": 3, "rounds": 2} | changes)), clients, seeds=seeds)


class Norm(fs.UpdateSignal):
    name = "norm"

    def measure(self, update, reference):
        return optax.tree.norm(update.delta) + update.loss * 0


class KeptNorm(Norm):
    stacked = True


class ByNorm(fs.ClientSelector):
    """Notes each member's norm."""

    signal: fs.UpdateSignal = KeptNorm()

    def signals(self):
        return fs.Signals(after=[self.signal])

    def init(self, key, ctx, host):
        return jnp.zeros(ctx.num_clients)

    def select(self, key, state, ctx):
        return top_m(key, -state, ctx.available, ctx.m)

    def observe(self, key, state, ctx, cohort, *, norm):
        return state.at[cohort.returned].set(norm, mode="drop")


def test_a_signal_that_looks_at_an_update_that_is_not_kept_is_an_error():
    with pytest.raises(ValueError, match=r"'norm' looks at update.delta after the merge.*Norm the attribute stacked"):
        run(client_selection=ByNorm(Norm()))
    history = run(client_selection=ByNorm(), rounds=4)
    assert len(set(history.selections[0, :2].ravel().tolist())) == 6, "those with a norm come last"


class FirstOnly(RoundRobin):
    """Fills the first slot alone, by its mask."""

    def select(self, key, state, ctx):
        cohort = super().select(key, state, ctx)
        return cohort.replace(mask=cohort.mask & (jnp.arange(ctx.m) < 1))


def test_a_slot_that_the_mask_empties_is_empty_everywhere():
    history = run(client_selection=FirstOnly(), rounds=2)
    assert (history.selections[0, :, 1:] == -1).all()
    assert history.counts().sum() == 2


class Middle(fs.Aggregator):
    def weights(self, cohort, num_examples, plan):
        return cohort.mask / 3.0

    def combine(self, deltas, weights):
        return jax.tree.map(lambda leaf: jnp.median(leaf, axis=0), deltas)


def test_an_aggregator_of_all_updates_that_does_not_ask_for_them_is_refused():
    with pytest.raises(ValueError, match=r"Middle.combine needs all updates at once.*stacked = True"):
        run(aggregation=Middle())


class Summed(fs.Aggregator):
    stacked = True

    def weights(self, cohort, num_examples, plan):
        return cohort.mask * 1.0


class ForgotTheCall(fs.Aggregator):
    def weights(self, cohort, num_examples, plan):
        return cohort.mask / 3.0

    def server_optimizer(self):
        return optax.adam


class TakesLess(fs.Aggregator):
    def weights(self, cohort, num_examples):
        return cohort.mask / 3.0


class Shift(fs.Correction):
    def correct(self, client_state, gradient, variables, received):
        return gradient


class ShiftOfTwo(Shift):
    def correct(self, client_state, gradient):
        return gradient


class SendsLess(Shift):
    up = -1.0


class SendsText(Shift):
    down = "1"


class Free(fs.ExampleSignal):
    name = "free"

    def measure(self, logits, y):
        return logits.sum(-1)


class CostIsAMethod(Free):
    def cost(self):
        return fs.Cost(up=1.0)


class MeasuresLess(Free):
    def measure(self, logits):
        return logits.sum(-1)


class ByFree(fs.ClientSelector):
    free: fs.ExampleSignal = Free()

    def signals(self):
        return fs.Signals(before=[self.free])

    def select(self, key, state, ctx, *, free):
        return top_m(key, free, ctx.available, ctx.m)


class OfData(fs.DataSelector):
    def signals(self):
        return {"free": MeasuresLess()}

    def select(self, key, state, valid, *, free):
        return valid


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"aggregation": Summed()},
            r"Summed asks for all updates at once \(stacked = True\), but has no method combine",
        ),
        ({"aggregation": ForgotTheCall()}, r"server_optimizer returned .*adam.*; it must return an optax.Gradient"),
        ({"aggregation": TakesLess()}, r"TakesLess.weights cannot .*; it must take \(cohort, num_examples, plan\)"),
        ({"correction": ShiftOfTwo()}, r"it must take \(client_state, gradient, variables, received\)"),
        ({"correction": SendsLess()}, r"SendsLess: up is -1.0; it must be"),
        ({"correction": SendsText()}, r"SendsText: down is '1'; it must be"),
        ({"client_selection": ByFree(CostIsAMethod())}, r"CostIsAMethod.cost is a method; .*write @property"),
        ({"client_selection": ByFree(MeasuresLess())}, r"MeasuresLess.measure cannot .*must take \(logits, y\)"),
        ({"data_selection": OfData()}, r"MeasuresLess.measure cannot .*must take \(logits, y\)"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(*value.values()).__name__,
)
def test_methods_that_do_not_fit_their_contract_are_refused_before_anything_is_traced(parts, said):
    with pytest.raises(ValueError, match=said):
        run(**parts)


def test_what_fits_its_contract_in_another_form_is_accepted():
    class Loose(Shift):
        up = 0.5

        def correct(self, *args, **more):
            return args[1]

    class EverySecond(fs.Aggregator):
        def weights(self, cohort, num_examples, plan):
            return cohort.mask / 3.0

        def server_optimizer(self):
            return optax.MultiSteps(optax.sgd(1.0), 2)

    class Tunes(SGD):
        def train(self, key, task, variables, examples, plan, *, num_steps):
            return super().train(key, task, variables, examples, plan, num_steps=num_steps)

    def logged(function):
        @functools.wraps(function)
        def wrapper(self, *arguments):
            return function(self, *arguments, 1.0)

        return wrapper

    class Decorated(fs.Aggregator):
        @logged
        def weights(self, cohort, num_examples, plan, scale):
            return cohort.mask * scale / 3

    assert run(client_selection=ByFree(), correction=Loose(), aggregation=EverySecond(), rounds=1).rounds == 1
    tuned = fs.Federation(DATA, fs.partition.Iid(clients=6), holdout=0.3)
    kept = {"fine_tuning": Tunes(0.1), "evaluate_clients_every": 1, "aggregation": Decorated()}
    assert run(clients=tuned, rounds=1, **kept).rounds == 1


def test_an_optimiser_may_need_other_numbers():
    def make(learning_rate, beta, *, nesterov):
        return optax.sgd(learning_rate, beta, nesterov=bool(nesterov))

    assert Optax(0.1, optimizer=make, hyperparams={"beta": 0.9, "nesterov": 0.0}).hyperparams["beta"] == 0.9
    with pytest.raises(ValueError, match=r"optimizer cannot be called .*'nesterov'"):
        Optax(0.1, optimizer=make, hyperparams={"beta": 0.9})


def test_functions_that_cannot_be_called_are_refused_when_they_are_given():
    for make, said in (
        (lambda: fs.partition.Function(lambda labels: labels), r"function cannot .*must take \(labels, rng\)"),
        (lambda: fs.partition.Function("iid"), r"function is 'iid'; it must be a function of \(labels, rng\)"),
        (lambda: Function(lambda round: round), r"present cannot .*must take \(round, num_clients\)"),
        (
            lambda: Optax(0.1, optimizer=lambda rate: optax.sgd(rate)),
            r"optimizer cannot .*must take \(\*, learning_rate\)",
        ),
        (lambda: fs.models.from_nnx(lambda: nnx.Linear(2, 3)), r"make cannot .*must take \(rngs\)"),
    ):
        with pytest.raises(ValueError, match=said):
            make()


def test_a_partition_rule_may_write_to_the_labels_it_gets():
    def halves(labels, rng):
        labels[labels > 0] = 1
        return labels

    iris = fs.load("iris")
    drawn = fs.Federation(iris, fs.partition.Function(halves)).draw(0)
    np.testing.assert_array_equal(np.bincount(iris.y), [40, 40, 40])
    np.testing.assert_array_equal(drawn.count_labels(), [[40, 0, 0], [0, 40, 40]])


def test_a_model_without_parameters_is_refused():
    task = fs.Task(fs.models.from_functions(lambda key, x: {}, lambda variables, x: x[:, :3]))
    with pytest.raises(ValueError, match="the model has no parameters to train"):
        fs.simulate(
            fs.Experiment(task, cohort_size=2, rounds=1), fs.Federation(fs.load("iris"), fs.partition.Iid(4)), 1
        )


def spread(outputs, targets):
    return outputs.std(-1)


def error(outputs, targets):
    return (outputs.argmax(-1) != targets) * 1.0


def test_no_client_is_the_worst_by_a_metric_without_a_direction(monkeypatch):
    def measure():
        task = TASK.replace(metrics={"spread": spread, "error": MeanOf(error, higher_is_better=False)})
        return run(task, evaluate_clients_every=1)

    history = measure()
    assert "client_spread_mean" in history.metrics
    assert "client_spread_worst_decile" not in history.metrics
    assert history["client_error_worst_decile"][0, -1] == history.client_metrics["error"][0, -1].max()
    monkeypatch.setattr(spread, "higher_is_better", True, raising=False)
    history = measure()
    assert history["client_spread_worst_decile"][0, -1] == history.client_metrics["spread"][0, -1].min()


def unseeded(key, x):
    return {"w": jnp.asarray(np.random.normal(size=(3, 3)), jnp.float32)}  # noqa: NPY002


class Unseeded(RoundRobin):
    def init(self, key, ctx, host):
        np.random.default_rng().normal()
        return super().init(key, ctx, host)


class UnseededDevices:
    def draw(self, seed, clients):
        np.random.rand()  # noqa: NPY002
        return LogNormal().draw(seed, clients)


class NoDevices:
    def draw(self, seed, clients):
        return {"seconds": np.ones(clients)}


def noisy(outputs, targets):
    return outputs[:, 0] + np.random.rand()  # noqa: NPY002


@pytest.mark.parametrize(
    "start",
    [
        lambda: run(fs.Task.on(fs.models.from_functions(unseeded, lambda v, x: x @ v["w"]), DATA)),
        lambda: run(client_selection=Unseeded()),
        lambda: run(clients=fs.Federation(DATA, fs.partition.Iid(clients=6), devices=UnseededDevices())),
        lambda: run(TASK.replace(metrics={"noisy": noisy})),
    ],
    ids=["model", "selector", "devices", "metric"],
)
def test_random_numbers_that_no_seed_repeats_are_refused(start):
    with pytest.raises(OwnCodeError, match=r"random numbers were drawn from np\.random"):
        start()


@pytest.mark.parametrize("normalise", ["none", "Unit"])
def test_an_unknown_normalisation_is_refused(normalise):
    with pytest.raises(ValueError, match="it must be True, False or 'unit'"):
        fs.Task.on(LogisticRegression(classes=3), DATA, normalise=normalise)


def test_columns_that_lose_what_they_vary_in_are_refused():
    minutes = 1.7e12 + 60_000.0 * np.arange(60)
    with pytest.raises(ValueError, match=r"column 1 \(from 1.7e\+12 to 1.7e\+12\) loses digits"):
        fs.dataset("times", np.stack([np.arange(60.0), minutes], 1), Y)
    with pytest.raises(ValueError, match="column 'ms'"):
        from_frame(pd.DataFrame({"ms": minutes.astype(np.int64), "y": Y}), label="y")
    assert fs.dataset("times", np.stack([np.arange(60.0), np.full(60, 1.7e12)], 1), Y).x.dtype == np.float32


def test_a_table_whose_rows_are_nearly_all_classes_is_warned_of():
    frame = pd.DataFrame({"size": X[:, 0], "price": np.arange(60)})
    with pytest.warns(UserWarning, match="'price' holds 60 different numbers in 60 rows.*targets='continuous'"):
        from_frame(frame, label="price")


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            lambda: run(TASK.replace(metrics={"m": lambda z, y: {"a": z[:, 0]}})),
            "returns a dict; it must return an array",
        ),
        (lambda: run(TASK.replace(metrics={"m": lambda z, y: None})), "returns nothing; it must return an array"),
        (lambda: run(TASK.replace(loss=lambda z, y: (z[:, 0], 1))), r"loss is of shape \(it is a tuple\)"),
        (
            lambda: fs.dataset("noise", X[:3], Y[:3], owner=np.array(["a", None, "b"], object)),
            "owner 1 is None; every example needs an owner",
        ),
        (
            lambda: run(clients=fs.Federation(DATA, fs.partition.Iid(clients=6), devices=NoDevices())),
            "NoDevices.draw returned a dict; it must return a DeviceProfile",
        ),
    ],
)
def test_what_a_part_cannot_return_is_named(start, said):
    with pytest.raises(ValueError, match=said):
        start()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("jax_enable_x64", True, "runs are in 32 bits"),
        ("jax_threefry_partitionable", False, "other random numbers are drawn"),
        ("jax_random_seed_offset", 7, "other random numbers are drawn"),
        ("jax_debug_nans", True, "marks what was not measured"),
        ("jax_numpy_dtype_promotion", "strict", "several types are combined"),
    ],
)
def test_a_setting_of_jax_that_would_change_or_break_a_run_is_refused(name, value, why):
    before, needed = getattr(jax.config, name), REFUSED[name][0]
    try:
        jax.config.update(name, value)
        with pytest.raises(
            ValueError, match=rf"(?s)JAX has {name}={value!r}, and runs need {needed!r}: .*{why}.*limits"
        ):
            run()
    finally:
        jax.config.update(name, before)


@pytest.mark.parametrize("layout", ["scan", "vmap"])
def test_random_numbers_do_not_depend_on_jaxs_default_generator(layout):
    plain = fs.simulate(fs.Experiment(TASK, cohort_size=2, rounds=2), CLIENTS, seeds=[2], layout=layout)
    with jax.default_prng_impl("rbg"):
        other = fs.simulate(fs.Experiment(TASK, cohort_size=2, rounds=2), CLIENTS, seeds=[0, 2], layout=layout)
    np.testing.assert_array_equal(other.selections[1], plain.selections[0])
    np.testing.assert_allclose(other["accuracy"][1], plain["accuracy"][0], atol=1e-6)


@pytest.mark.parametrize("name", ["round", "seed", "client"])
def test_a_metric_that_is_called_like_a_column_is_refused(name):
    with pytest.raises(ValueError, match=f"a metric is called '{name}'"):
        TASK.replace(metrics={name: spread})


def test_rounds_whose_examples_cannot_be_counted_are_refused():
    training = fs.local_training.SGD(steps=2**28, batch_size=32)
    with pytest.raises(ValueError, match="a cohort may pass 6,442,450,944 examples"):
        fs.Experiment(TASK, local_training=training, cohort_size=3).check(CLIENTS.draw(0))


def test_an_own_metric_called_accuracy_keeps_its_direction():
    def right(outputs, targets):
        return (outputs.argmax(-1) == targets) * 1.0

    task = TASK.replace(metrics={"accuracy": right, "spread": spread})
    assert task.is_better_higher("accuracy") is True
    assert task.is_better_higher("loss") is False
    assert task.is_better_higher("spread") is None


def test_ordinary_columns_of_64_bits_are_accepted():
    """Constant but for rounding, of few rows, with an outlier, tiny, empty."""
    shares = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    ordinary = np.column_stack([shares, shares.sum(1), np.full(60, 1e-46), np.r_[1e6, np.arange(59.0)]])
    assert fs.dataset("shares", ordinary, Y, test=0.2).x.dtype == np.float32
    near = np.array([[48.137154, 11.5], [48.1371541, 11.6]])
    wide = np.column_stack([48 + np.random.default_rng(0).random(60), np.arange(60.0)])
    fs.dataset("places", wide, Y, test=(near, np.array([0, 1])))


def test_parameters_in_lists_and_tuples_are_kept():
    model = fs.models.from_functions(
        lambda key, x: [(jnp.zeros((3, 3)), jnp.zeros(3))], lambda v, x: x @ v[0][0] + v[0][1][None]
    )
    assert fs.Task.on(model, DATA).parameters(DATA.x) == 12


@pytest.mark.filterwarnings("ignore:GradientNorm. 1 ")
def test_gradients_do_not_see_other_clients_examples_as_padding():
    """Clients of 4, 6 and 8 rows, of which the second's are zeros: only its own norm is not finite."""

    def apply(variables, x):
        z = x @ variables["w"]
        return z / jnp.sqrt((z**2).sum(-1, keepdims=True))

    model = fs.models.from_functions(lambda key, x: {"w": jax.random.normal(key, (3, 3))}, apply)
    owner = np.repeat([0, 1, 2], [4, 6, 8])
    x = np.where(owner[:, None] == 1, 0, X[:18])
    data = fs.dataset("rows", x, Y[:18], test=(X[:6], Y[:6]), owner=owner)
    asked = fs.Federation(data, fs.partition.Natural())
    task = fs.Task.on(model, data, normalise=False)
    history = run(task, asked, client_selection=GradientNorm(), cohort_size=2, rounds=1)
    assert set(history.selections[0, 0].tolist()) == {0, 2}


def test_more_last_rounds_than_there_are_are_all():
    history = run(rounds=6, evaluate_every=5, evaluate_last=2**31 - 1)
    assert np.isfinite(history["accuracy"]).all()


class Reports(SGD):
    """Returns a number of its update in another shape or type."""

    field: str = fs.static(default="loss")
    as_type: str = fs.static(default="float32")

    def train(self, *args, **options):
        update = super().train(*args, **options)
        value = getattr(update, self.field)
        return update.replace(**{self.field: value[None] if self.as_type == "row" else value.astype(self.as_type)})


@pytest.mark.parametrize(
    ("field", "as_type", "said"),
    [
        ("loss", "row", r"Reports.train: loss returned .*\(1,\).*; it must be one number"),
        ("mean_sq_loss", "row", r"Reports.train: mean_sq_loss returned .*; it must be one number"),
        ("loss", "int32", r"Reports.train: loss returned .*; it must be one number"),
        ("steps", "float32", r"Reports.train: steps returned .*; it must be one integer"),
        ("examples_seen", "row", r"Reports.train: examples_seen returned .*; it must be one integer"),
    ],
)
def test_numbers_of_an_update_have_their_shapes_and_types(field, as_type, said):
    with pytest.raises(ValueError, match=said):
        run(local_training=Reports(field=field, as_type=as_type))


def bill(**fields):
    return fs.protocols.Upfront(**{"flops": np.zeros(6), "down": 0.0, "up": 0.0} | fields)


class Dear(RoundRobin):
    def upfront(self, ctx, host):
        return COST


class DearData(fs.DataSelector):
    def prepare(self, key, ctx, host):
        return fs.protocols.Prepared(cost=COST)

    def select(self, key, state, valid):
        return valid


COST = bill()


@pytest.mark.parametrize("part", [{"client_selection": Dear()}, {"data_selection": DearData()}])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"flops": np.ones(4)}, r"flops is .*\(4,\).*; it must be one number, or one for each of the N = 6 clients"),
        ({"down": np.ones(5)}, r"down is .*; it must be one number, or one for each of the N = 6 clients"),
        ({"up": -5.0}, r"up is -5.0; it must be in \[0, inf\)"),
        ({"down": np.nan}, r"down is nan; it must be"),
    ],
)
def test_a_cost_before_the_first_round_has_its_shape_and_range(part, fields, said, monkeypatch):
    monkeypatch.setattr(f"{__name__}.COST", bill(**fields))
    with pytest.raises(ValueError, match=said):
        run(**part)


@pytest.mark.parametrize("part", [{"client_selection": Dear()}, {"data_selection": DearData()}])
def test_one_number_of_operations_is_that_of_every_client(part, monkeypatch):
    monkeypatch.setattr(f"{__name__}.COST", bill(flops=1e6))
    alone = run(**part)["selection_flops"]
    monkeypatch.setattr(f"{__name__}.COST", bill(flops=np.full(6, 1e6)))
    assert alone.tolist() == run(**part)["selection_flops"].tolist() == [[6e6, 0.0]]


class Hurries(fs.DataSelector):
    """Chooses a deadline that no round can have."""

    seconds: float = fs.param(default=-1.0)
    is_number: bool = fs.static(default=True)

    def select(self, key, state, valid):
        return valid

    def choose_deadline(self, server, ctx, cohort, seconds):
        return jnp.where(self.is_number, self.seconds, jnp.nan)


@pytest.mark.parametrize(("seconds", "is_number"), [(-1.0, True), (0.0, True), (1.0, False)])
@pytest.mark.filterwarnings("ignore:no update came back")
def test_a_deadline_that_is_not_above_0_is_a_fault(seconds, is_number):
    clients = fs.Federation(DATA, fs.partition.Iid(clients=6), devices=LogNormal())
    with pytest.warns(UserWarning, match="Hurries: 2 deadlines from `choose_deadline` that are not above 0"):
        history = run(clients=clients, data_selection=Hurries(seconds=seconds, is_number=is_number))
    assert (history["seconds"] >= 0).all()
    assert (history["joules"] >= 0).all()


def test_a_metric_called_accuracy_is_one_number():
    task = TASK.replace(metrics={"accuracy": fs.task.ClassAccuracy()})
    with pytest.raises(
        ValueError, match=r"metric 'accuracy' is of shape \(3,\); a metric of this name must be one number"
    ):
        run(task)


class Numbered(RoundRobin):
    """Leaves the second slot empty."""

    as_type: str = fs.static(default="int32")

    def select(self, key, state, ctx):
        cohort = super().select(key, state, ctx)
        return cohort.replace(client=cohort.client.astype(self.as_type), mask=cohort.mask.at[1].set(False))


def test_clients_may_be_numbered_without_signs():
    history, signed = (run(client_selection=Numbered(as_type=as_type)) for as_type in ("uint8", "int32"))
    np.testing.assert_array_equal(history.selections, signed.selections)
    assert (history.selections[0, :, 1] == -1).all()
    assert history.counts().sum() == 4


class Passes(Norm):
    cost = fs.protocols.Cost(forward=1.0)


class Looks(fs.ClientSelector):
    """Asks for any signals, and does nothing with them."""

    at: str = fs.static(default="before")
    signal: fs.protocols.Signal = fs.static(default=None)
    more: fs.protocols.Signal = fs.static(default=None)

    def signals(self):
        extra = {} if self.more is None else {"trained": [self.more]}
        return fs.protocols.Signals(**{self.at: [self.signal]} | extra)

    def select(self, key, state, ctx, **signals):
        return top_m(key, jnp.zeros(ctx.num_clients), ctx.available, ctx.m)

    def observe(self, key, state, ctx, cohort, **signals):
        return state


class Probes(Looks):
    def probes(self, round):
        return round == 0


class Probed(Norm):
    name = "probed_loss"


def test_a_signal_after_the_round_that_passes_examples_is_refused():
    with pytest.raises(
        ValueError, match=r"Looks: the signal Passes passes examples, which is not billed after the round"
    ):
        run(client_selection=Looks(at="after", signal=Passes()))
    run(client_selection=Looks(at="trained", signal=Passes()))


def test_a_signal_called_like_a_probe_is_refused():
    with pytest.raises(
        ValueError, match=r"Probes has a signal called 'probed_loss', as a probe's values are; rename it"
    ):
        run(client_selection=Probes(signal=fs.signals.Loss(), more=Probed()))


class Sharp(fs.protocols.ExampleSignal):
    name = "sharp"
    backward: float = fs.static(default=0.0)

    @property
    def cost(self):
        return fs.protocols.Cost(forward=1.0, backward=self.backward, needs_model=True, up=1.0)

    def measure(self, logits, y, mask):
        return logits.max()


class Priced(Norm):
    numbers: float = fs.param(default=2.0)

    @property
    def cost(self):
        return fs.protocols.Cost(up=self.numbers)


class LooksAtNumbers(fs.ClientSelector):
    signal: Priced = Priced()

    def signals(self):
        return fs.Signals(trained=[self.signal])

    def select(self, key, state, ctx):
        return top_m(key, jnp.zeros(ctx.num_clients), ctx.available, ctx.m)

    def accept(self, key, state, ctx, cohort, *, norm):
        return cohort


def test_a_cost_may_depend_on_a_parameter_with_and_without_devices():
    with_devices = fs.Federation(DATA, fs.partition.Iid(clients=6), devices=LogNormal())
    asked = LooksAtNumbers()
    found = [run(clients=one, client_selection=asked)["selection_bytes_up"].tolist() for one in (CLIENTS, with_devices)]
    assert found == [[[24.0, 24.0]]] * 2


class Billed(fs.ClientSelector):
    """Was meant to have `observe`."""

    def signals(self):
        return fs.Signals(trained=[fs.signals.Loss()])

    def select(self, key, state, ctx):
        return top_m(key, jnp.zeros(ctx.num_clients), ctx.available, ctx.m)


def test_a_signal_that_no_method_takes_is_warned_of():
    with pytest.warns(
        UserWarning, match=r"Billed declares the signal 'loss', which is measured and billed, but has no"
    ):
        run(client_selection=Billed())
