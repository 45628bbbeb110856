"""Mistakes in a user's own code: one line that says where, and what helps."""

import threading

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import fedjax_sel as fs
from fedjax_sel.client_selection import top_m
from fedjax_sel.mistakes import OwnCodeError, name_operation, name_own_code, refuse_global_random_numbers
from fedjax_sel.report.summary import build_table, summarize
from fedjax_sel.task.metrics import MeanOf

POINTS = fs.dataset("points", np.eye(4)[np.arange(40) % 4], np.arange(40) % 2, test=0.2)
CLIENTS = fs.Federation(POINTS, fs.partition.Iid(clients=4))
LINEAR = fs.Task.on(fs.models.LogisticRegression(classes=2), POINTS)


class Asking(fs.ClientSelector):
    """Asks for losses; what is wrong is in `score`."""

    def signals(self):
        return fs.Signals(before=[fs.signals.Loss()])

    def select(self, key, state, ctx, *, loss):
        return top_m(key, self.score(loss), ctx.available, ctx.m)


class Branches(Asking):
    def score(self, loss):
        return loss if loss[0] > 0 else -loss


class CallsNumpy(Asking):
    def score(self, loss):
        return np.log(loss)


class Masks(Asking):
    def score(self, loss):
        return loss[loss > 0]


class Combines(Asking):
    def score(self, loss):
        return jnp.where((loss > 0) and (loss < 1), loss, 0)


class Slices(Asking):
    def score(self, loss):
        return loss[: loss.argmax()]


class Repeats(Asking):
    def score(self, loss):
        key = jax.random.key(0)
        return jax.random.uniform(key, loss.shape) - jax.random.uniform(key, loss.shape)


class Short(Asking):
    def score(self, loss):
        return loss + loss[:3]


class Divides(Asking):
    def score(self, loss):
        return loss / (1 // 0)


class Misspelt(Asking):
    def score(self, loss):
        return los  # noqa: F821 (misspelt)


class MisspeltOfJax(Asking):
    def score(self, loss):
        return jnp.arrange(loss)  # type: ignore[attr-defined]


class Images(nn.Module):
    @nn.compact
    def __call__(self, x):
        if x.ndim < 4:
            raise RuntimeError("no channels")
        return nn.Dense(2)(x.reshape(x.shape[0], -1))


def run(selector, **execution):
    return fs.simulate(fs.Experiment(LINEAR, client_selection=selector, cohort_size=2, rounds=1), CLIENTS, **execution)


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (Branches(), r"test_mistakes.py, line \d+, in score: a number that is known only .* jnp.where"),
        (CallsNumpy(), r"test_mistakes.py, line \d+, in score: a number that is known only .* jnp instead of np"),
        (Misspelt(), r"test_mistakes.py, line \d+, in score: NameError: name 'los' is not defined"),
        (MisspeltOfJax(), r"test_mistakes.py, line \d+, in score: AttributeError: .* no attribute 'arrange'"),
        (Short(), r"test_mistakes.py, line \d+, in score: TypeError: .*shapes for broadcasting: \(4,\), \(3,\)"),
    ],
)
def test_an_error_of_types_in_a_selector_names_its_line_and_what_helps(selector, said):
    with pytest.raises(OwnCodeError, match=said) as caught:
        run(selector)
    assert caught.value.__notes__[0] == "in client selection"


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (Masks(), r"line \d+, in score: a mask chooses elements.*; write jnp.where\(mask, x, -jnp.inf\)"),
        (Combines(), r"line \d+, in score: (a number that is known only|The truth value of an array).*"),
        (Slices(), r"line \d+, in score: IndexError: (Array slice|Slice entries).*"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_what_shapes_would_depend_on_is_one_line(selector, said, debug):
    if debug and not isinstance(selector, Combines):  # numbers are known there
        return
    with pytest.raises(OwnCodeError, match=said):
        run(selector, debug=debug)


def test_a_key_that_is_used_twice_is_said_where_jax_is_asked_to_look():
    with jax.debug_key_reuse(True), pytest.raises(Exception, match="consumed"):
        run(Repeats(), debug=True)


def test_other_errors_of_a_selector_stay_what_they_are():
    with pytest.raises(ZeroDivisionError):
        run(Divides())


def test_a_model_that_cannot_be_applied_names_the_examples_it_was_given():
    flat = fs.dataset("flat", np.zeros((8, 6, 6)), np.arange(8) % 2, test=0.5)
    said = r"Images cannot be applied to examples of shape \(6, 6\) and type float32: RuntimeError: no channels; images"
    with pytest.raises(OwnCodeError, match=said):
        fs.Task.on(Images(), flat).init(jax.random.key(0), flat.x)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.BatchNorm()(x))


def test_an_error_of_value_in_an_own_model_names_the_model_too():
    said = r'Normed cannot be applied to examples of shape \(4,\) .*ValueError: Parameter "use_running_average" must be'
    with pytest.raises(OwnCodeError, match=said) as caught:
        fs.Task.on(Normed(), POINTS).init(jax.random.key(0), POINTS.x)
    assert caught.value.__notes__ == ["see docs/learn/own_model.md"]
    sums = fs.models.from_functions(lambda key, x: {"w": x[0]}, lambda variables, x: x @ variables["w"][:2])
    task = fs.Task.on(sums, POINTS)
    with pytest.raises(OwnCodeError, match="FunctionModel cannot be applied") as caught:
        task.logits(task.init(jax.random.key(0), POINTS.x), POINTS.x)
    assert caught.value.__notes__ == ["see docs/learn/own_model.md"]


def test_examples_of_another_shape_than_a_models_are_named():
    task = LINEAR.replace(shift=jnp.zeros(()), scale=jnp.ones(()))
    with pytest.raises(OwnCodeError, match=r"LogisticRegression cannot be applied to examples of shape \(7,\)"):
        task.logits(task.init(jax.random.key(0), POINTS.x), jnp.zeros((2, 7)))


def find_margin(logits, y):
    return jnp.abs(logits[:, 0] - logits[:, 1])


def test_a_runs_table_has_the_tasks_own_metrics_on_the_test_examples_and_of_clients():
    task = LINEAR.replace(metrics={"margin": MeanOf(find_margin, higher_is_better=True)})
    experiment = fs.Experiment(task, cohort_size=2, rounds=2, evaluate_clients_every=2)
    history = fs.simulate(experiment, CLIENTS)
    found = summarize(history)
    assert found["final_margin"]["mean"] == pytest.approx(history["margin"][0, -1])
    console = Console(record=True, width=120)
    console.print(build_table("a run", found))
    shown = console.export_text()
    assert "final margin" in shown
    assert "client margin, worst tenth of the clients" in shown


def draw(text):
    exec(compile(text, "cell 1", "exec"), {"np": np})


@pytest.mark.parametrize(
    "text", ["np.random.default_rng().random(3)", "np.random.default_rng(None)", "np.random.rand()"]
)
def test_numbers_of_numpy_without_a_seed_are_refused(text):
    refusal = r"random numbers were drawn from np\.random.*draw them from the key"
    with pytest.raises(OwnCodeError, match=refusal), refuse_global_random_numbers():
        draw(text)
    draw(text)  # afterwards they are anybody's


def test_other_threads_draw_as_they_like_and_numpy_is_as_it_was(monkeypatch):
    """The first that is watched is the first to be let go."""
    there, entered, left, done = threading.Barrier(2, timeout=60), threading.Event(), threading.Event(), []

    def watch(first):
        if not first:
            entered.wait(60)
        with refuse_global_random_numbers():
            entered.set()
            there.wait()  # until both are watched
            if not first:
                left.wait(60)
        done.append(first)
        left.set()

    make = np.random.default_rng
    threads = [threading.Thread(target=watch, args=(first,)) for first in (True, False)]
    for one in threads:
        one.start()
    draw("np.random.default_rng()")
    for one in threads:
        one.join()
    assert done == [True, False]
    assert np.random.default_rng is make
    draw("np.random.default_rng()")


def test_a_seed_makes_them_constants_and_libraries_draw_as_they_like():
    with refuse_global_random_numbers():
        draw("assert np.random.default_rng(3).random() == np.random.default_rng(3).random()")
        from sklearn.cluster import KMeans

        KMeans(2, n_init=1, random_state=0).fit(np.arange(8.0).reshape(-1, 1))


def test_a_field_that_is_set_is_told_with_its_line_and_what_to_do_instead():
    class Counting(fs.ClientSelector):
        seen: int = fs.static(default=0)

        def select(self, key, state, ctx):
            self.seen = 1

    said = r"test_mistakes\.py, line \d+, in select: .*its state \(init, observe\)"
    with pytest.raises(OwnCodeError, match=said), name_own_code():
        Counting().select(None, None, None)


class Refuses(fs.ClientSelector):
    def select(self, key, state, ctx):
        raise ValueError("no client is good enough")


def test_an_error_that_a_selector_raises_itself_is_told_with_its_line():
    said = r"test_mistakes\.py, line \d+, in select: no client is good enough"
    with pytest.raises(OwnCodeError, match=said) as raised:
        fs.simulate(fs.Experiment(LINEAR, client_selection=Refuses(), cohort_size=2, rounds=1), CLIENTS)
    assert "in client selection" in raised.value.__notes__


class MakesItself(fs.ClientSelector):
    def __init__(self, bonus=0.1):
        self.bonus = bonus

    def select(self, key, state, ctx):
        return top_m(key, ctx.num_examples + 0.0, ctx.available, ctx.m)


def test_a_constructor_of_ones_own_is_told_of_fields():
    said = r"in __init__: .* cannot be set, .*declare .* as a field, .*fs.param\("
    with pytest.raises(OwnCodeError, match=said), name_own_code():
        MakesItself()


class SortsWithNumpy(fs.ClientSelector):
    def select(self, key, state, ctx):
        return top_m(key, np.argsort(ctx.num_examples) + 0.0, ctx.available, ctx.m)


def test_an_operation_that_jax_traces_but_cannot_compile_is_named():
    experiment = fs.Experiment(LINEAR, client_selection=SortsWithNumpy(), cohort_size=2, rounds=1)
    with pytest.raises(OwnCodeError, match=r"JAX cannot compile argsort .*write jnp.argsort"):
        fs.simulate(experiment, CLIENTS)


@pytest.mark.parametrize("cause", [None, KeyError("theirs")])
def test_errors_of_types_that_no_operation_caused_stay_what_they_are(cause):
    with pytest.raises(TypeError, match="mine: incompatible function arguments") as raised, name_operation():
        raise TypeError("mine: incompatible function arguments") from cause
    assert not isinstance(raised.value, OwnCodeError)


def test_another_error_of_an_operation_stays_what_it_is():
    """As where a gradient of one's own has another shape: what JAX says of it helps more than the function's name."""
    operation = type("JaxStackTraceBeforeTransformation", (Exception,), {})
    try:
        raise operation
    except operation as frame:
        with pytest.raises(TypeError, match="another shape") as raised, name_operation():
            raise TypeError("another shape") from frame
    assert not isinstance(raised.value, OwnCodeError)


@pytest.mark.parametrize(("module", "given", "meant"), [(fs, "Simulate", "simulate"), (fs.models, "Mlp", "MLP")])
def test_a_name_in_other_capitals_is_suggested(module, given, meant):
    with pytest.raises(AttributeError, match=f"has no attribute '{given}'; did you mean '{meant}'"):
        getattr(module, given)
