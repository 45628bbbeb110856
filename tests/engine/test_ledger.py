"""The ledger and its price against hand counts: who trained is read off the history, what it costs is added up here."""

from types import SimpleNamespace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Correction, Experiment, Federation, Task, partition, signals, simulate, sweep
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.gradient_norm import GradientNorm
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.correction.none import NoCorrection
from fedjax_sel.data_selection.everything import Everything
from fedjax_sel.engine.ledger import ALL, BY_LIMIT, COLUMNS, Ledger, count_passes, find_rates, price
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import ClientSelector, ClientSignal, Cost, DataSelector, Signals, UpfrontSignal
from fedjax_sel.pytree import param, static

N, M, EPOCHS, SEEDS = 9, 3, 2, (4, 9)
P = 2 * 3 + 3  # logistic regression of two features and three classes
MODEL = 4 * P  # bytes
F = 2 * 2 * 3 + 3 + 2 * 2  # a row's multiply-adds twice, its biases, its shift and scale


class Fixed(ClientSelector):
    """The same candidates and cohort in every round, whatever the signals say; asks in even rounds only."""

    before: tuple = ()
    after: tuple = ()
    trained: tuple = ()
    asked: tuple | None = static(default=None)
    cohort: tuple = static(default=(2, 3, 4))
    always: bool = static(default=True)

    def signals(self):
        return Signals(before=self.before, after=self.after, trained=self.trained)

    def observe(self, key, state, ctx, cohort, **told):
        return state

    def asks(self, round):
        return jnp.logical_or(self.always, round % 2 == 0)

    def candidates(self, key, state, ctx):
        return None if self.asked is None else jnp.array(self.asked)

    def select(self, key, state, ctx, **before):
        client = jnp.array(self.cohort)
        return cohort_of(client, client >= 0)


class EverySecondRow(DataSelector):
    """A client looks at all its rows before it takes every second one."""

    def signals(self):
        return {"entropy": signals.Entropy(), "margin": signals.Margin()}

    def select(self, key, state, valid, *, entropy, margin):
        return valid & (jnp.arange(valid.shape[0]) % 2 == 0)


@pytest.fixture(scope="module")
def unequal(blobs):
    return Federation(blobs, partition.Dirichlet(clients=N, alpha=0.7, min_examples=4), holdout=0.3)


@pytest.fixture(scope="module")
def equal(blobs):
    """24 rows a client."""
    return Federation(blobs, partition.Iid(clients=N))


@pytest.fixture
def run(blobs):
    def go(federation, selector, rounds=3, **answers):
        task = Task.on(LogisticRegression(classes=3), blobs)
        trainer = SGD(batch_size=8, epochs=EPOCHS)
        return simulate(
            Experiment(
                task, client_selection=selector, local_training=trainer, cohort_size=M, rounds=rounds, **answers
            ),
            federation,
            SEEDS,
        )

    return go


def of_each_round(history, federation, count):
    """`count(cohort, data)` of every seed and round, in plain Python."""
    return np.array(
        [
            [count([i for i in cohort if i >= 0], federation.draw(seed)) for cohort in cohorts.tolist()]
            for seed, cohorts in zip(history.seeds, history.selections, strict=True)
        ],
        np.float64,
    )


def check(history, federation, **expected):
    """Training is billed in every run; selection as said, 0 where nothing is said. Exactly."""
    training = {
        "bytes_down": lambda cohort, data: MODEL * len(cohort),
        "bytes_up": lambda cohort, data: MODEL * len(cohort),
        "client_flops": lambda cohort, data: 3 * F * EPOCHS * sum(data.num_examples[i] for i in cohort),
    }
    for column in COLUMNS:
        count = {**training, **expected}.get(column, lambda cohort, data: 0)
        np.testing.assert_array_equal(history[column], of_each_round(history, federation, count), err_msg=column)


def test_without_signals_only_training_is_paid(run, unequal):
    history = run(unequal, Uniform())
    assert (history.about["parameters"], history.about["forward_flops_per_example"]) == (P, F)
    check(history, unequal)
    assert len(np.unique(history["client_flops"])) > 3, "clients of unequal size"


def test_entropy_sends_the_model_to_everybody_once_and_passes_all_rows_through_it(run, unequal):
    check(
        run(unequal, Entropy(epsilon=0.5)),
        unequal,
        selection_bytes_down=lambda cohort, data: MODEL * (N - M),  # the cohort has it already
        selection_bytes_up=lambda cohort, data: 4 * N,
        selection_flops=lambda cohort, data: F * data.num_examples.sum(),
    )


def test_gradient_norm_pays_a_forward_and_a_backward_pass_which_is_three_forward_passes(run, unequal):
    check(
        run(unequal, GradientNorm()),
        unequal,
        selection_bytes_down=lambda cohort, data: MODEL * (N - M),
        selection_bytes_up=lambda cohort, data: 4 * N,
        selection_flops=lambda cohort, data: 3 * F * data.num_examples.sum(),
    )


def test_signals_of_the_same_gradient_share_it():
    norm, sketch, noise = signals.GradientNorm(), signals.Gradient(k=4), signals.GradientNoise(4)
    assert count_passes([norm]) == count_passes([norm, sketch]) == 3
    assert count_passes([norm, noise]) == count_passes([norm, sketch, noise]) == 6
    assert count_passes([norm, signals.Loss(), signals.Entropy()]) == 4
    before = signals.Gradient(k=4, before_training=True)
    assert count_passes([before]) == 3
    assert count_passes([norm, before]) == 6, "at the model that a member received, and at the one that it trained"


def test_signals_on_holdout_rows_are_passes_over_holdout_rows(run, unequal):
    history = run(unequal, Entropy(epsilon=0.5), signal_split="holdout")
    check(
        history,
        unequal,
        selection_bytes_down=lambda cohort, data: MODEL * (N - M),
        selection_bytes_up=lambda cohort, data: 4 * N,
        selection_flops=lambda cohort, data: F * data.num_holdout.sum(),
    )


def test_power_of_choice_pays_for_its_candidates_and_the_cohort_is_among_them(run, equal):
    check(
        run(equal, PowerOfChoice(d=5)),
        equal,
        selection_bytes_down=lambda cohort, data: MODEL * (5 - M),
        selection_bytes_up=lambda cohort, data: 4 * 5,
        selection_flops=lambda cohort, data: F * 5 * 24,
    )


def test_only_candidates_outside_the_cohort_get_the_model_for_their_answer(run, unequal):
    """Clients 0 to 3 are asked, 2 to 4 train; in odd rounds nobody is asked."""
    asks = [1, 0, 1]
    history = run(unequal, Fixed(before=(signals.Loss(), signals.Entropy()), asked=(0, 1, 2, 3), always=False))
    assert (history.selections == [2, 3, 4]).all()
    for column, expected in {
        "selection_bytes_down": lambda data: MODEL * 2,
        "selection_bytes_up": lambda data: 4 * 4 * 2,
        "selection_flops": lambda data: F * data.num_examples[:4].sum(),  # two row signals, one forward pass
    }.items():
        whole = [[ask * expected(unequal.draw(seed)) for ask in asks] for seed in SEEDS]
        np.testing.assert_array_equal(history[column], whole, err_msg=column)


def test_what_is_read_off_the_finished_round_costs_what_it_says_and_empty_slots_nothing(run, unequal):
    """One number more comes up with each update; the norm of the update is free."""
    after = (signals.TrainingLoss(), signals.UpdateNorm(), signals.ValidationLoss())
    history = run(unequal, Fixed(after=after, cohort=(5, -1, 1)))
    check(history, unequal, selection_bytes_up=lambda cohort, data: 4 * 2)


def test_rows_a_client_looks_at_to_choose_from_are_paid_and_send_nothing(run, unequal):
    check(
        run(unequal, Uniform(), data_selection=EverySecondRow()),
        unequal,
        client_flops=lambda cohort, data: 3 * F * EPOCHS * sum(-(-data.num_examples[i] // 2) for i in cohort),
        selection_flops=lambda cohort, data: F * sum(data.num_examples[i] for i in cohort),
    )


def counted(**some):
    """A ledger with these counts; those by limit are of signals that pass all examples, or given by their limits."""
    count = {name: np.array([some.get(name, 0)]) for name in Ledger.__dataclass_fields__ if name not in BY_LIMIT}
    given = {name: some.get(name, 0) for name in BY_LIMIT}
    by_limit = {name: n if isinstance(n, dict) else {ALL: np.array([n])} for name, n in given.items()}
    return Ledger(**count | by_limit | {"seconds": None, "joules": None})


class Dear(ClientSignal):
    name = "dear"

    @property
    def cost(self):
        return Cost(forward=2.0, backward=1.0, down=10.0, up=3.0)

    def measure(self, task, variables, batch, key):
        return jnp.zeros(())


class Known:
    """A task whose model has these sizes."""

    def __init__(self, parameters, flops):
        self.of = {"parameters": parameters, "shared_parameters": parameters, "flops": flops, "backward": 2.0}
        self.of |= {"outputs": (1, 3), "gradient_parameters": parameters}

    def __getattr__(self, name):
        return lambda x: self.of[name]


def rates(selector, parameters, flops):
    parts = {"client_selection": selector, "data_selection": Everything(), "correction": NoCorrection()}
    data = SimpleNamespace(like=None, public_x=None)
    return find_rates(SimpleNamespace(task=Known(parameters, flops), **parts), data)


class Sparse(Correction):
    """Sends a share of the model's size besides each update."""

    share: float = param(default=1.0, low=0)

    @property
    def up(self):
        return self.share

    def correct(self, client_state, gradient, variables, received):
        return gradient


def test_in_a_sweep_each_experiment_has_its_own_prices(blobs):
    clients = Federation(blobs, partition.Iid(clients=N))
    runs = [
        Experiment(Task.on(LogisticRegression(3), blobs), correction=Sparse(share), cohort_size=M, rounds=2)
        for share in (0.5, 1.0)
    ]
    found = sweep(runs, clients, seeds=2)
    for run, history, expected in zip(runs, found, (1.5, 2.0), strict=True):
        np.testing.assert_array_equal(history["bytes_up"], expected * M * MODEL)
        np.testing.assert_array_equal(simulate(run, clients, seeds=2)["bytes_up"], history["bytes_up"])
        assert history["bytes_down"].shape == history["flops"].shape == (2, 2)


def test_every_entry_of_a_cost_is_priced():
    counts = counted(
        members=2,
        models_sent=2,
        reports=2,
        uploads=2,
        trained_examples=40,
        screened_examples=20,
        asked=5,
        models_for_signals=3,
        signal_examples=70,
    )
    paid = price(counts, rates(Fixed(before=(Dear(),)), 100, 7.0))
    assert {name: value.item() for name, value in paid.items()} == {
        "bytes_down": 800,
        "bytes_up": 800,
        "client_flops": 40 * 3 * 7,
        "selection_bytes_down": 5 * 4 * 10,  # it answers without the model
        "selection_bytes_up": 5 * 4 * 3,
        "selection_flops": 70 * (2 + 2 * 1) * 7,
    }
    both = price(counts, rates(Fixed(before=(Dear(), signals.Loss())), 100, 7.0))
    assert both["selection_bytes_down"] == 3 * 400 + 5 * 4 * 10
    assert both["selection_bytes_up"] == 5 * 4 * 4
    assert both["selection_flops"] == 70 * (4 + 1) * 7, "a client signal shares no pass with an example signal"


class Pretested(UpfrontSignal):
    """Measured on the initial model before round 0, on four examples at most: seven numbers of each client."""

    name: ClassVar[str] = "pretested"
    declared: Cost = Cost()

    @property
    def cost(self):
        return self.declared

    def measure(self, key, host):
        return jnp.zeros((host.data.num_clients, 7))


class Prepared(Fixed):
    """Two signals before round 0."""

    first: Pretested = Pretested()

    def signals(self):
        return Signals(upfront={"one": self.first, "labels": signals.LabelCounts()})

    def init(self, key, ctx, host, *, one, labels):
        return ()


@pytest.mark.parametrize(
    ("cost", "down", "up", "flops"),
    [
        (Cost(), 0, 4 * 7 * N, lambda size: 0 * size),
        (Cost(up=2.0, down=3.0), 4 * 3 * N, 4 * 2 * N, lambda size: 0 * size),
        (Cost(forward=1.0, backward=1.0, needs_model=True, up=1.0), MODEL * N, 4 * N, lambda size: 3 * F * size),
        (
            Cost(forward=1.0, models_up=2.0, up=1.0, max_examples=4),
            0,
            (2 * MODEL + 4) * N,
            lambda size: F * np.minimum(size, 4),
        ),
        (
            Cost(forward=1.0, backward=1.0, needs_model=True, models_up=1.0),
            MODEL * N,
            MODEL * N,
            lambda size: 3 * F * size,
        ),
    ],
    ids=["nothing", "numbers", "passes", "models", "models alone"],
)
def test_signals_before_round_0_are_billed_to_it_as_they_declare(run, unequal, cost, down, up, flops):
    """Numbers that are not declared are those of the value; the counts of three classes are sent beside it."""
    paid, plain = run(unequal, Prepared(first=Pretested(cost))), run(unequal, Fixed())
    sizes = [np.asarray(unequal.draw(seed).num_examples) for seed in SEEDS]
    expected = {
        "selection_bytes_down": down,
        "selection_bytes_up": up + 4 * 3 * N,
        "selection_flops": [flops(size).sum() for size in sizes],
    }
    for column in COLUMNS:
        np.testing.assert_array_equal(paid[column][:, 0] - plain[column][:, 0], expected.get(column, 0), column)
        np.testing.assert_array_equal(paid[column][:, 1:], plain[column][:, 1:], column)


def test_a_vector_over_classes_and_passes_over_public_examples_are_priced():
    """Soft labels of 8 public examples, by 5 members, 8 forward passes each; 3 numbers up from the 4 that return."""

    class Public(Fixed):
        def signals(self):
            return Signals(trained=[signals.OnPublic(signals.SoftLabels())])

    parts = {"client_selection": Public(), "data_selection": Everything(), "correction": NoCorrection()}
    data = SimpleNamespace(like=None, public_x=np.zeros((8, 2)))
    what = find_rates(SimpleNamespace(task=Known(100, 7.0), **parts), data)
    paid = price(counted(reports=4, measured=5, uploads=2, measured_examples=50), what)
    assert paid["selection_bytes_up"].item() == 4 * 4 * 3
    assert paid["selection_flops"].item() == 5 * 8 * 7
    assert paid["bytes_up"].item() == 2 * 400


def test_members_pay_for_as_many_examples_as_a_signal_passes_and_for_what_they_receive_after_the_round():
    class Few(Dear):
        name = "few"

        @property
        def cost(self):
            return Cost(forward=1.0, up=1.0, max_examples=5)

    class Compared(signals.UpdateNorm):
        name = "compared"

        @property
        def cost(self):
            return Cost(down=6.0, up=2.0)

    what = rates(Fixed(trained=(Few(), Dear()), after=(Compared(),)), 100, 7.0)
    paid = price(counted(reports=4, uploads=3, measured_examples={"5": np.array([20]), ALL: np.array([90])}), what)
    assert paid["selection_flops"].item() == (20 * 1 + 90 * (2 + 2)) * 7
    assert paid["selection_bytes_down"].item() == 4 * (4 * 10 + 3 * 6)
    assert paid["selection_bytes_up"].item() == 4 * (4 * (3 + 1) + 3 * 2)


def test_a_minibatch_of_a_trained_model_costs_its_size_in_a_run(run, unequal):
    check(
        run(unequal, Fixed(trained=(signals.MinibatchLoss(4),))),
        unequal,
        selection_bytes_up=lambda cohort, data: 4 * len(cohort),
        selection_flops=lambda cohort, data: F * sum(min(4, data.num_examples[i]) for i in cohort),
    )


def test_ledgers_add_up_and_their_prices_too():
    one, other = counted(members=2, models_sent=1, uploads=2, asked=3), counted(members=1, trained_examples=9)
    what = rates(Fixed(before=(signals.Loss(),)), 100, 7.0)
    each, both = [price(part, what) for part in (one, other)], price(one + other, what)
    assert {name: value.item() for name, value in both.items()} == {
        name: (each[0][name] + each[1][name]).item() for name in COLUMNS
    }


def test_large_prices_stay_exact():
    paid = price(counted(members=3, uploads=3), rates(Uniform(), 2**40 + 1, 1.0))
    assert int(paid["bytes_up"][0]) == 3 * 4 * (2**40 + 1)


@pytest.mark.parametrize("row", [(784,), (28, 28, 1)])
@pytest.mark.parametrize(
    ("model", "parameters", "multiply_adds"),
    [
        (MLP(classes=10, hidden=(64, 30)), 52_500, 784 * 64 + 64 * 30 + 30 * 10),
        (MLP(classes=10, hidden=(64, 30), dropout=0.5), 52_500, 784 * 64 + 64 * 30 + 30 * 10),
        (LogisticRegression(classes=10), 7_850, 784 * 10),
    ],
    ids=["mlp", "mlp with dropout", "logistic"],
)
def test_parameters_are_exact_and_a_forward_pass_is_two_operations_a_multiply_add(
    model, parameters, multiply_adds, row
):
    task, x = Task(model, 0.1307, 3.0), np.zeros((5, *row), np.uint8)
    assert task.parameters(x) == parameters
    overhead = 784 * 2  # each value is shifted and scaled
    assert task.flops(x) - overhead == pytest.approx(2 * multiply_adds, rel=0.1)
    assert task.flops(x[:1]) == task.flops(x), "of one row, however many there are"
