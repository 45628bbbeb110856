"""GPFL against its rules in plain Python, round by round."""

import math
import os
import subprocess
import sys
from collections import Counter
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, dataset, partition, signals
from fedjax_sel.client_selection.gpfl import CHOICES, GPFL
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.signals import measure_after, measure_server
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import Host
from fedjax_sel.types import Cohort, Context, Update

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""
KEY = jax.random.key(0)
TABLE = {
    "warm_up": {"code": 20, "paper": 0},
    "projection": {"code": "tensors", "paper": "whole"},
    "reference": {"code": "aggregate", "paper": "previous"},
    "softmax": {"code": "cohort", "paper": "cohort"},
    "reward": {"code": "sign", "paper": "exponential"},
    "mean": {"code": "selections_and_one", "paper": "selections"},
    "bonus": {"code": "rounds", "paper": "rounds"},
    "schedule": {"code": "hump", "paper": "linear"},
}


def context(n, m, round=0, rounds=50, available=None):
    available = np.ones(n, bool) if available is None else available
    return Context(
        jnp.int32(round), jnp.int32(rounds), jnp.full(n, 10, jnp.int32), jnp.asarray(available), cohort_size=m
    )


@jax.jit
def step(selector, key, state, ctx, came, projection, accuracy, loss):
    """Bounds, cohort, who came back of it, and the state after the round; `projection` and `came` by client."""
    cohort = selector.select(key, state, ctx)
    mask = cohort.mask & came[cohort.client]
    back = cohort.replace(mask=mask)
    seen = {"validation_accuracy": accuracy, "validation_loss": loss}
    new = selector.observe(key, state, ctx, back, projection=jnp.where(mask, projection[cohort.client], 0.0), **seen)
    return selector.bound(state, ctx), cohort, back, new


class ByHand:
    """The rules of the table, one client at a time."""

    def __init__(self, selector, n, m, rounds):
        given = {name: getattr(selector, name) for name in TABLE}
        self.rule = {n: TABLE[n][selector.variant] if rule is None else rule for n, rule in given.items()}
        self.alpha, self.n, self.m, self.rounds = selector.alpha, n, m, rounds
        self.last, self.rewards, self.times = np.zeros(n), [[] for _ in range(n)], np.zeros(n, int)
        self.accuracy, self.loss = 0.0, math.inf

    def bounds(self, t):
        alpha = self.alpha
        if self.rule["schedule"] == "hump":
            alpha *= t / 100 if t < 100 else 200 / (t + 100)
        if self.rule["schedule"] == "linear":
            alpha *= t / self.rounds
        n = t if self.rule["bonus"] == "rounds" else self.times.sum()
        u = np.zeros(self.n)
        for i, rewards in enumerate(self.rewards):
            count = {"selections": len(rewards), "selections_and_one": len(rewards) + 1, "rounds": t}[self.rule["mean"]]
            u[i] = sum(rewards) / count if rewards else 0.0
            if alpha > 0:
                u[i] += alpha * math.sqrt(2 * math.log(max(n, 1)) / self.times[i]) if self.times[i] else math.inf
        return u

    def check(self, t, available, client):
        """Whether a cohort is one that the rules allow; equal bounds may be settled either way."""
        u, who, chosen = self.bounds(t), np.flatnonzero(available), set(client)
        assert len(chosen) == len(client)
        new, warm_up = {i for i in who if self.times[i] == 0}, self.rule["warm_up"]
        if new and warm_up and t < warm_up:
            assert chosen <= new
            assert len(chosen) == min(math.ceil(self.n / warm_up), self.m, len(new))
            return "warm"
        must = set()
        if new and not warm_up:
            if len(new) >= self.m:
                assert chosen <= new
                assert len(chosen) == self.m
                return "warm"
            must = new
        assert must <= chosen <= set(who.tolist())
        others = sorted((u[i] for i in who if i not in must), reverse=True)[: self.m - len(must)]
        np.testing.assert_allclose(sorted((u[i] for i in chosen - must), reverse=True), others, rtol=1e-5, atol=1e-6)
        return "filled" if must else "best"

    def factor(self, t, accuracy, loss):
        up = accuracy - self.accuracy
        down = self.loss - loss
        if self.rule["reward"] in ("none", "zero"):
            return 1.0 if self.rule["reward"] == "none" else 0.0
        if self.rule["reward"] == "sign":
            return np.sign(up) if up else 0.5 * np.sign(down)
        if up:
            return 2 * math.exp(up)
        return 1.0 if t == 0 else math.exp(-down if self.rule["reward"] == "printed" else down)

    def observe(self, t, client, mask, projection, accuracy, loss):
        back = [i for i, came in zip(client, mask, strict=True) if came]
        self.last[back] = projection[back]
        over = range(self.n) if self.rule["softmax"] == "everyone" else back
        total = sum(math.exp(self.last[i]) for i in over)
        new = {i: math.exp(self.last[i]) / total * self.factor(t, accuracy, loss) for i in back}
        levels = list(new.values()) or [np.mean(rewards) for rewards in self.rewards if rewards]
        for i in client:
            if i in new or levels:  # the silent count with 0, or with the mean of the others if that is less
                self.rewards[i].append(new[i] if i in new else min(np.mean(levels), 0.0))
            self.times[i] += 1
        if back:
            self.accuracy, self.loss = accuracy, loss


SELECTORS = [
    GPFL(),
    GPFL(variant="paper"),
    GPFL(
        alpha=0.3,
        warm_up=3,
        projection="cosine",
        softmax="everyone",
        reward="printed",
        mean="rounds",
        bonus="selections",
        schedule="constant",
        signal="test",
    ),
    GPFL(variant="paper", reference="aggregate", reward="none", mean="selections_and_one", schedule="hump", alpha=2.0),
    GPFL(
        warm_up=5, projection="whole", reference="previous", mean="selections", reward="exponential", schedule="linear"
    ),
    GPFL(variant="paper", projection="tensors", softmax="everyone", reward="sign", bonus="selections", alpha=0.0),
    GPFL(warm_up=3, reward="zero"),
]


def test_every_rule_is_tried_below():
    for name, values in CHOICES.items():
        assert {s.signal if name == "signal" else s.rule(name) for s in SELECTORS} == set(values), name
    for name, rules in TABLE.items():
        assert {variant: GPFL(variant=variant).rule(name) for variant in ("code", "paper")} == rules


@pytest.mark.parametrize("selector", SELECTORS, ids=range(len(SELECTORS)))
def test_gpfl_is_its_table_of_rules_in_random_rounds(selector):
    rng, n, m, rounds = np.random.default_rng(2), 13, 4, 50
    plain, happened = ByHand(selector, n, m, rounds), Counter()
    state = selector.init(KEY, context(n, m), HOST)
    for t in range(rounds):
        available, came = rng.random(n) < 0.85, rng.random(n) < 0.85
        projection = rng.normal(size=n)
        accuracy, loss = rng.integers(0, 4) / 4, rng.integers(1, 4) / 2
        numbers = (jnp.asarray(a, jnp.float32) for a in (projection, accuracy, loss))
        now = context(n, m, t, rounds, available)
        u, cohort, back, new = step(selector, jax.random.key(t), state, now, jnp.asarray(came), *numbers)
        np.testing.assert_allclose(u, plain.bounds(t), rtol=1e-5, atol=1e-6)
        client = cohort.client[cohort.mask].tolist()
        assert set(cohort.client[~cohort.mask].tolist()) <= {-1}
        happened[plain.check(t, available, client)] += 1
        happened["tie"] += accuracy == plain.accuracy
        happened["silent"] += int((~back.mask[cohort.mask]).sum())
        plain.observe(t, client, back.mask[cohort.mask].tolist(), projection, accuracy, loss)
        np.testing.assert_array_equal(new.selected, plain.times)
        np.testing.assert_array_equal(new.rewarded, [len(r) for r in plain.rewards])
        state = new
    assert min(happened["warm"], happened["tie"]) >= 3
    assert happened["best"] > 20
    assert happened["silent"] > 15


def quiet(selector, n, m, rounds, projection=None, rise=0.0):
    """Cohorts of rounds in which everybody is there and comes back, and the last state."""
    state, cohorts = selector.init(KEY, context(n, m), HOST), []
    projection = jnp.zeros(n) if projection is None else jnp.asarray(projection, jnp.float32)
    for t in range(rounds):
        accuracy = jnp.float32((t + 1) * rise)
        given = (jnp.ones(n, bool), projection, accuracy, jnp.float32(1.0))
        _, cohort, _, state = step(selector, jax.random.key(t), state, context(n, m, t, rounds), *given)
        cohorts.append(cohort.client[cohort.mask].tolist())
    return cohorts, state


@pytest.mark.parametrize(("n", "m", "warm_up"), [(20, 6, 5), (13, 4, 4), (7, 3, 7)])
def test_the_codes_warm_up_visits_everybody_once_in_rounds_that_are_not_full(n, m, warm_up):
    each = -(-n // warm_up)
    last = -(-n // each)
    cohorts, _ = quiet(GPFL(warm_up=warm_up), n, m, last + 1)
    assert sorted(chain(*cohorts[:last])) == list(range(n))
    assert [len(c) for c in cohorts] == [each] * (last - 1) + [n - each * (last - 1), m]


def test_a_cohort_smaller_than_the_warm_ups_share_is_the_limit():
    cohorts, _ = quiet(GPFL(warm_up=2), 12, 2, 7)
    assert [len(c) for c in cohorts] == [2] * 7
    assert sorted(chain(*cohorts[:6])) == list(range(12)), "those left over have infinite bounds"


@pytest.mark.parametrize(("n", "m"), [(13, 4), (10, 5), (7, 7)])
def test_the_papers_warm_up_visits_everybody_in_full_rounds(n, m):
    last = -(-n // m)
    cohorts, _ = quiet(GPFL(variant="paper"), n, m, last)
    assert all(len(set(c)) == m for c in cohorts)
    assert set(chain(*cohorts)) == set(range(n))
    assert len(set(chain(*cohorts[: n // m]))) == n // m * m, "nobody twice while others wait"


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_equal_rewards_make_it_round_robin(variant):
    """Shares of everyone's softmax: in a cohort of another size, as the last of a warm-up, equal shares are not 1/m."""
    warm_up = 5 if variant == "code" else 0
    selector = GPFL(variant=variant, warm_up=warm_up, softmax="everyone", reward="none", mean="selections")
    for rounds in (10, 23, 40):
        count = np.bincount([*chain(*quiet(selector, 13, 4, rounds)[0])], minlength=13)
        assert count.max() - count.min() <= 1


def test_without_the_bonus_it_stays_on_the_best_of_the_warm_up():
    """Shares are about 1/4 and the model gets better, so that a mean over one more grows with every selection."""
    projection = np.random.default_rng(3).permutation(20) / 40
    cohorts, state = quiet(GPFL(alpha=0.0, warm_up=5), 20, 4, 5, projection, rise=0.01)
    best = set(np.argsort(-np.asarray(state.total))[:4].tolist())
    cohorts, _ = quiet(GPFL(alpha=0.0, warm_up=5), 20, 4, 30, projection, rise=0.01)
    assert all(set(c) == best for c in cohorts[5:])


def test_alpha_rises_to_round_100_and_falls_after_it():
    state = GPFL().init(KEY, context(3, 1), HOST)._replace(selected=jnp.array([1, 2, 8]))
    for t, alpha in ((50, 0.5), (99, 0.99), (100, 1.0), (300, 0.5)):
        u = GPFL().bound(state, context(3, 1, t))
        np.testing.assert_allclose(u, alpha * np.sqrt(2 * np.log(t) / np.array([1, 2, 8])), rtol=1e-5)


def test_those_who_drop_out_were_selected_and_get_no_reward_of_their_own():
    selector, ctx = GPFL(), context(5, 3, round=1)
    state = selector.init(KEY, ctx, HOST)
    cohort = Cohort(jnp.array([4, 1, -1]), jnp.array([True, False, False]), jnp.ones(3))
    told = {"projection": jnp.array([2.0, 0, 0]), "validation_accuracy": jnp.float32(0.5)}
    told["validation_loss"] = jnp.float32(1)
    state = selector.observe(KEY, state, ctx, cohort, **told)
    assert state.selected.tolist() == [0, 1, 0, 0, 1]
    assert state.rewarded.tolist() == [0, 1, 0, 0, 1], "the mean of 1 is above 0, with which the silent one counts"
    assert state.total.tolist() == [0, 0, 0, 0, 1], "the softmax is over those who came back"
    assert state.projection.tolist() == [0, 0, 0, 0, 2]
    told["validation_loss"] = jnp.float32(9)
    nobody = selector.observe(KEY, state, ctx, cohort.replace(mask=jnp.zeros(3, bool)), **told)
    assert nobody.total.tolist() == state.total.tolist()
    assert float(nobody.loss) == 1, "nobody came back, so that the model is the one before"


def test_a_reward_goes_by_accuracy_and_where_that_ties_by_loss():
    """Accuracy was 0.5 and loss 1; accuracy, loss, and the factors of `sign`, `exponential` and `printed`."""
    table = [(0.7, loss, 1.0, *2 * [2 * math.exp(0.2)]) for loss in (0.5, 1.0, 1.5)]
    table += [(0.4, loss, -1.0, *2 * [2 * math.exp(-0.1)]) for loss in (0.5, 1.0, 1.5)]
    table += [(0.5, 1.5, -0.5, math.exp(-0.5), math.exp(0.5))]
    table += [(0.5, 0.5, 0.5, math.exp(0.5), math.exp(-0.5)), (0.5, 1.0, 0.0, 1.0, 1.0)]
    for rounded in np.nextafter(np.float32(0.5), np.float32([0, 1])):  # more than a fused difference leaves of nothing
        table += [(rounded, 1.5, -0.5, math.exp(-0.5), math.exp(0.5))]
    table += [(0.5 + sign * 1e-6, 1.5, sign, 2.0, 2.0) for sign in (-1, 1)]  # one of a million examples
    ctx = context(3, 1, round=4)
    state = GPFL().init(KEY, ctx, HOST)._replace(accuracy=jnp.float32(0.5), loss=jnp.float32(1.0))
    state = state._replace(rewarded=jnp.array([1, 0, 0]))
    for accuracy, loss, *expected in table:
        numbers = jnp.float32(accuracy), jnp.float32(loss)
        got = [GPFL(reward=r).factor(state, *numbers) for r in ("sign", "exponential", "printed", "none", "zero")]
        np.testing.assert_allclose(got, [*expected, 1.0, 0.0], rtol=1e-5)


OPTIMISED = """
import jax, jax.numpy as jnp
from fedjax_sel.client_selection.gpfl import GPFL, GPFLState

def round(state, correct):
    accuracy = jnp.mean((jnp.arange(144) < correct).astype(jnp.float32))
    factor = GPFL().factor(state, accuracy, jnp.float32(0.9))
    return state._replace(accuracy=accuracy, loss=jnp.float32(1.0)), factor

count = jnp.ones(3, jnp.int32)
begun = GPFLState(jnp.zeros(3), jnp.zeros(3), count, count, jnp.float32(0.0), jnp.float32(1.0))
_, factors = jax.jit(lambda correct: jax.lax.scan(round, begun, correct))(jnp.repeat(jnp.arange(60, 140), 2))
print(sorted(set(factors[::2].tolist())), sorted(set(factors[1::2].tolist())))
"""


def test_an_unchanged_accuracy_is_seen_in_an_optimised_program_too():
    """There, the mean and the difference from the one before are rounded once; each accuracy comes twice."""
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", OPTIMISED], env=plain, capture_output=True, text=True, check=True)
    assert done.stdout == "[1.0] [0.5]\n", "it rises, and then it does not, while the loss falls"


@pytest.mark.parametrize(("accuracy", "expected"), [(0.3, (1.0, 2 * math.exp(0.3))), (0.0, (0.5, 1.0))])
def test_before_the_first_round_accuracy_is_zero_and_loss_infinite(accuracy, expected):
    ctx = context(3, 1)
    state = GPFL().init(KEY, ctx, HOST)
    got = [GPFL(reward=r).factor(state, jnp.float32(accuracy), jnp.float32(2)) for r in ("sign", "exponential")]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_accuracy_and_loss_are_of_the_rows_that_signal_says(blobs):
    data = jax.tree.map(jnp.asarray, Federation(blobs, partition.Iid(clients=4)).draw(0))
    task, w = Task(LogisticRegression(classes=3)), np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)
    variables = {"params": {"kernel": jnp.array(w[:2].T), "bias": jnp.array(w[2])}}
    delta = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), variables)
    update = Update(delta, *3 * [jnp.ones(2, int)], *2 * [jnp.ones(2)])
    mask = jnp.array([True, False])
    for on, examples in (("validation", 8192), ("test", 8192), ("test", 7)):
        round_of = (task, variables, data, update, variables, None, mask)
        got = measure_after(GPFL(signal=on).signals().after, *round_of, Layout(examples=examples))
        x, y = (np.asarray(getattr(data, f"{on}_{part}")) for part in "xy")
        z = x.astype(float) @ w[:2] + w[2]
        np.testing.assert_allclose(got["validation_accuracy"], (z.argmax(1) == y).mean(), rtol=1e-6)
        loss = (np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]).mean()
        np.testing.assert_allclose(got["validation_loss"], loss, rtol=1e-5)
        lengths = [np.linalg.norm(w[:2]), np.linalg.norm(w[2])]
        np.testing.assert_allclose(got["projection"], [np.mean(lengths), 0], rtol=1e-5)


def test_on_test_rows_it_needs_no_validation_rows(blobs):
    bare = dataset("bare", blobs.x, blobs.y, test=(blobs.test_x, blobs.test_y))
    task, data = Task.on(LogisticRegression(classes=3), bare), Federation(bare, partition.Iid(clients=6)).draw(0)
    with pytest.raises(
        ValueError, match="validation_accuracy, validation_loss, but the server has no validation examples"
    ):
        Experiment(task, client_selection=GPFL(), cohort_size=2, rounds=3).check(data)
    Experiment(task, client_selection=GPFL(signal="test"), cohort_size=2, rounds=3).check(data)


def test_another_alpha_is_not_another_program():
    given = context(9, 2), jnp.ones(9, bool), jnp.zeros(9), jnp.float32(0), jnp.float32(0)
    state = GPFL().init(KEY, given[0], HOST)
    step(GPFL(jnp.float32(1.0)), KEY, state, *given)
    before = step._cache_size()
    step(GPFL(jnp.float32(0.2)), KEY, state, *given)
    assert step._cache_size() == before


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GPFL(variant="papre"), "gpfl: variant is 'papre'; .*; did you mean 'paper'"),
        (lambda: GPFL(reward="exponentail"), "gpfl: reward is 'exponentail'; .*; did you mean 'exponential'"),
        (lambda: GPFL(signal="tset"), "gpfl: signal is 'tset'; .*; did you mean 'test'"),
        (lambda: GPFL(mean="selection"), "gpfl: mean is 'selection'; .*; did you mean 'selections'"),
        (lambda: GPFL(alpha=-0.5), "gpfl: alpha is -0.5; it must be 0 or above"),
        (lambda: GPFL(alpha=jnp.array([1.0, math.nan])), "gpfl: alpha"),
        (lambda: GPFL(warm_up=-1), "gpfl: warm_up is -1; it must be a whole number, at least 0"),
    ],
)
def test_what_does_not_exist_or_is_out_of_range_is_refused_when_the_value_is_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def leaves(rng):
    return {"a": rng.normal(size=(4, 3)), "b": rng.normal(size=3), "c": {"d": rng.normal(size=(2, 2, 2))}}


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("over", ["tensors", "whole"])
def test_a_projection_is_the_dot_product_with_the_direction_of_the_aggregate(over, cosine):
    rng = np.random.default_rng(4)
    for zero in (None, "b", "all"):
        delta, aggregate = leaves(rng), leaves(rng)
        for name in {None: (), "b": ("b",), "all": ("a", "b", "c")}[zero]:
            aggregate[name] = jax.tree.map(np.zeros_like, aggregate[name])
        pairs = [(d.ravel(), g.ravel()) for d, g in zip(*map(jax.tree.leaves, (delta, aggregate)), strict=True)]
        if over == "whole":
            pairs = [tuple(map(np.concatenate, zip(*pairs, strict=True)))]
        lengths = [np.linalg.norm(g) * (np.linalg.norm(d) if cosine else 1) for d, g in pairs]
        expected = np.mean([d @ g / n if n else 0.0 for (d, g), n in zip(pairs, lengths, strict=True)])
        one = jnp.ones((), int)
        delta, aggregate = (jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), t) for t in (delta, aggregate))
        update = Update(delta, one, one, one, jnp.ones(()), jnp.ones(()))
        got = signals.Projection(norm_over=over, cosine=cosine).measure(update, aggregate)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_the_servers_examples_pass_the_model_as_many_at_once_as_the_layout_has(blobs, monkeypatch):
    data = jax.tree.map(jnp.asarray, Federation(blobs, partition.Iid(clients=4)).draw(0))
    task, seen, whole = Task(LogisticRegression(classes=3)), [], Task.logits
    monkeypatch.setattr(Task, "logits", lambda self, variables, x: seen.append(len(x)) or whole(self, variables, x))
    wanted = {"validation_loss": signals.ValidationLoss("test")}
    variables = task.init(KEY, blobs.x)
    for most in (8192, 8):
        measure_server(wanted, task, variables, data, Layout(examples=most))
    assert seen == [len(blobs.test_y), 8]


@pytest.mark.parametrize("reward", ["sign", "exponential", "printed"])
@pytest.mark.parametrize(("before", "now"), [(math.inf, math.inf), (1.0, math.nan), (math.nan, 1.0)])
def test_a_validation_loss_that_is_no_number_does_not_spoil_rewards_for_good(reward, before, now):
    selector = GPFL(reward=reward)
    state = selector.init(KEY, context(4, 2), HOST)._replace(
        rewarded=jnp.ones(4, jnp.int32), accuracy=jnp.float32(0.5), loss=jnp.float32(before)
    )
    one = Cohort(jnp.array([2, 3]), jnp.ones(2, bool), jnp.ones(2))
    told = {"validation_accuracy": jnp.float32(0.5), "validation_loss": jnp.float32(now)}
    state = selector.observe(KEY, state, context(4, 2), one, projection=jnp.ones(2), **told)
    assert np.isfinite(state.total).all()


def test_who_does_not_return_gets_the_mean_of_the_others_rewards_if_that_is_negative():
    """By hand: shares of two equal projections are a half each, and accuracy falls, so each reward is -1/2."""
    selector, ctx = GPFL(), context(4, 3)
    state = selector.init(KEY, ctx, HOST)._replace(accuracy=jnp.float32(0.5), rewarded=jnp.ones(4, jnp.int32))
    one = Cohort(jnp.array([1, 2, 3]), jnp.array([True, True, False]), jnp.ones(3))
    told = {"projection": jnp.ones(3), "validation_loss": jnp.float32(1)}
    fell = selector.observe(KEY, state, ctx, one, validation_accuracy=jnp.float32(0.4), **told)
    np.testing.assert_allclose(fell.total, [0, -0.5, -0.5, -0.5])
    np.testing.assert_array_equal(fell.rewarded, [1, 2, 2, 2])
    rose = selector.observe(KEY, state, ctx, one, validation_accuracy=jnp.float32(0.6), **told)
    np.testing.assert_allclose(rose.total, [0, 0.5, 0.5, 0])
    nobody = one.replace(mask=jnp.zeros(3, bool))
    idle = selector.observe(KEY, fell, ctx, nobody, validation_accuracy=jnp.float32(0.4), **told)
    np.testing.assert_allclose(idle.total - fell.total, [0, *3 * [-0.1875]], err_msg="the mean of 0 and three of -1/4")
    first = selector.observe(
        KEY, selector.init(KEY, ctx, HOST), ctx, nobody, validation_accuracy=jnp.float32(0.4), **told
    )
    np.testing.assert_array_equal(first.rewarded, 0)
