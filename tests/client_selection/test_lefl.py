"""LEFL's parts against definitions, and whether it finds groups that were planted."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import Experiment, Federation, Task, config, load, partition, simulate
from fedjax_sel.client_selection import lefl
from fedjax_sel.client_selection._strata import divergences, draw_quotas, draw_strata, draw_stratified, quotas
from fedjax_sel.client_selection.lefl import LEFL, cluster_clients, predict_log_probs
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.devices.laws import Uniform as UniformLaw
from fedjax_sel.engine import driver
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.init import selector_inputs
from fedjax_sel.engine.layout import Layout
from fedjax_sel.local_training.alternating import Alternating
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP
from fedjax_sel.protocols import Host
from fedjax_sel.types import Context

KEY = jax.random.key(0)
DIGITS = load("digits")
LAW = partition.LabelGroups(24, 2)
PRE_PHASE = jnp.log(jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(10), (24, 150)), jnp.float32))
PUBLIC = np.random.default_rng(0).permutation(DIGITS.x.ravel()).reshape(-1, 64)[:150]


def federation(**changes):
    return dataclasses.replace(Federation(DIGITS, LAW, public=PUBLIC), **changes)


def experiment(selector, cohort_size=5, rounds=3, **trainer):
    task = Task.on(MLP(classes=10, hidden=(32,)), DIGITS)
    return Experiment(
        task,
        selector,
        local_training=SGD(**{"learning_rate": 0.1, "batch_size": 10, "epochs": 2, **trainer}),
        cohort_size=cohort_size,
        rounds=rounds,
    )


@pytest.mark.parametrize("block", [1, 3, 256])
def test_divergences_are_kullback_and_leiblers(block):
    p = np.random.default_rng(1).dirichlet(np.ones(4), (7, 5))
    got = divergences(jnp.log(jnp.asarray(p, jnp.float32)), block)
    wanted = [[np.mean([stats.entropy(p[i, x], p[j, x]) for x in range(5)]) for j in range(7)] for i in range(7)]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    assert (np.asarray(got) >= 0).all()


def largest_remainder(size, m):
    """One each, then by what is missing to the ideal, one at a time."""
    ideal, q = m * size / size.sum(), np.minimum(np.maximum(np.floor(m * size / size.sum()), 1), size).astype(int)
    while q.sum() < min(m, size.sum()):
        q[np.argmax(np.where(q < size, ideal - q, -np.inf))] += 1
    while q.sum() > m:
        q[np.argmin(np.where(q > 1, ideal - q, np.inf))] -= 1
    return q


def test_quotas_add_up_leave_nobody_out_and_follow_the_remainders():
    rng = np.random.default_rng(2)
    assert quotas(jnp.array([50, 30, 20]), 10).tolist() == [5, 3, 2]
    assert quotas(jnp.array([97, 1, 1, 1]), 10).tolist() == [7, 1, 1, 1]
    assert quotas(jnp.array([3, 0, 4]), 10).tolist() == [3, 0, 4], "everybody"
    quotas_of = jax.jit(jax.vmap(quotas, (0, None)), static_argnums=1)
    for strata in range(1, 9):
        sizes = rng.integers(1, 30, (14, strata))
        m = int(rng.integers(strata, sizes.sum(1).min() + 1))
        for size, got in zip(sizes, np.asarray(quotas_of(sizes, m)), strict=True):
            ideal, wanted = m * size / size.sum(), largest_remainder(size, m)
            np.testing.assert_allclose(
                np.sort(ideal - got), np.sort(ideal - wanted), atol=1e-5
            )  # equal remainders may swap
            assert got.sum() == m
            assert (got >= 1).all()
            assert (got <= size).all()
    sizes = rng.integers(20, 60, (50, 4))
    ideal = 40 * sizes / sizes.sum(1, keepdims=True)
    assert (np.abs(np.asarray(quotas_of(sizes, 40)) - ideal) < 1).all(), "the quota rule"


def test_fewer_slots_than_strata_go_to_some_in_proportion():
    size, first = jnp.array([6, 3, 1, 0]), np.zeros(4)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: draw_strata(key, size, 1)))(jax.random.split(KEY, 400)))
    assert (drawn.sum(1) == 1).all()
    first += drawn.sum(0)
    assert first[3] == 0
    assert stats.chisquare(first[:3], 400 * np.array([0.6, 0.3, 0.1])).pvalue > 1e-3
    assert np.asarray(draw_strata(jax.random.key(0), size, 3)).tolist() == [1, 1, 1, 0]


def test_members_of_a_stratum_are_equally_likely_and_the_unavailable_never_drawn():
    stratum, available = jnp.array([0, 0, 0, 1, 1, 2, 0, 2]), jnp.array([1, 1, 1, 1, 1, 1, 0, 1], bool)
    count = np.zeros(8)
    draw = jax.jit(jax.vmap(lambda key: draw_stratified(key, stratum, jnp.array([2, 1, 1]), available, 4)))
    cohorts = jax.tree.map(np.asarray, draw(jax.random.split(KEY, 600)))
    for client, mask in zip(cohorts.client, cohorts.mask, strict=True):
        drawn = client[mask].tolist()
        assert sorted(int(stratum[i]) for i in drawn) == [0, 0, 1, 2]
        count[drawn] += 1
    assert count[6] == 0
    for members, each in (([0, 1, 2], 400), ([3, 4], 300), ([5, 7], 300)):
        assert stats.chisquare(count[members], each).pvalue > 1e-3


@pytest.mark.parametrize("direction", ["paper", "code"])
def test_planted_groups_are_found_and_cohorts_have_every_label(direction):
    history = simulate(experiment(LEFL(kl_direction=direction)), federation(), seeds=3)
    group = LAW.groups(10)
    assert all(sorted(group[cohort]) == [0, 1, 2, 3, 4] for cohort in history.selections.reshape(-1, 5))
    random = simulate(experiment(Uniform()), federation(), seeds=3)
    assert not all(len(set(group[cohort])) == 5 for cohort in random.selections.reshape(-1, 5))


def test_directions_are_each_others_transpose_and_the_base_scales():
    log_p = jnp.log(jnp.asarray(np.random.default_rng(3).dirichlet(np.ones(3), (6, 4)), jnp.float32))
    paper = LEFL().distances(log_p)
    np.testing.assert_allclose(LEFL(kl_direction="code").distances(log_p), paper.T)
    np.testing.assert_allclose(LEFL(log_base="2").distances(log_p), paper / np.log(2), rtol=1e-6)
    assert (cluster_clients(paper, 3) == cluster_clients(paper / np.log(2), 3)).all()
    assert LEFL().strata(100) == 7
    assert [LEFL().strata(n) for n in (50, 30, 1000, 20, 1)] == [6, 5, 10, 5, 1]


def test_proportional_quotas_are_shares_rounded_by_chance():
    size, m = jnp.array([50, 26, 13, 7, 4, 0]), 10
    drawn = np.array(jax.jit(jax.vmap(lambda key: draw_quotas(key, size, m)))(jax.random.split(KEY, 4000)))
    ideal = m * np.array(size) / 100
    assert (drawn.sum(1) == m).all()
    assert (np.abs(drawn - ideal) < 1).all()
    np.testing.assert_allclose(drawn.mean(0), ideal, atol=0.03)
    np.testing.assert_array_equal(draw_quotas(jax.random.key(1), jnp.array([2, 1]), 5), [2, 1])
    history = simulate(experiment(LEFL(allocation="proportional"), cohort_size=3), federation(), seeds=1)
    assert ((history.selections >= 0).sum(-1) == 3).all()


def test_the_codes_allocation_says_how_large_its_cohort_is():
    with pytest.raises(ValueError, match=r"clusters of .* clients a cohort has (\d+) members, but m is 2; set m to"):
        simulate(experiment(LEFL(allocation="code"), cohort_size=2), federation(), seeds=1)
    history = simulate(experiment(LEFL(allocation="code", fraction=0.1), cohort_size=8), federation(), seeds=1)
    members = (history.selections >= 0).sum(-1)
    assert members.min() == members.max() == 5, "one of each cluster: max(1, round(0.1 * 5))"


def test_public_examples_are_billed_as_stored_where_their_features_are_computed_in_advance():
    """Whether a frozen backbone runs once or in every pass changes no bill."""
    settings = {
        "data": {"name": "digit_images", "num_examples": 60, "num_test_examples": 10},
        "public": {"name": "digit_images", "num_examples": 5, "seed": 1},
        "partition": {"clients": 4},
        "cohort_size": 2,
        "rounds": 1,
        "client_selection": "lefl",
    }
    costs = []
    for cached in (True, False):
        model = {"name": "wide_resnet", "depth": 10, "width": 1, "frozen": ["stem", "group1"], "cached": cached}
        run = config.build(config.resolve({**settings, "model": model}))
        data, one = run.data.draw(0), run.experiment
        variables = one.task.init(jax.random.key(0), data.x)
        _, ctx, host = selector_inputs(one, data, jax.random.key(0), variables)
        costs.append(LEFL().upfront(ctx, host))
        assert (data.public_x.shape[1:] == (8, 8, 1)) != cached
    assert costs[0].down == costs[1].down
    np.testing.assert_array_equal(costs[0].flops, costs[1].flops)


def test_personal_parts_are_not_on_the_bill_as_they_are_not_sent():
    """The last layer of 32 x 10 weights and 10 biases stays with the clients."""
    one, data = experiment(LEFL()), federation().draw(0)
    own = one.replace(task=one.task.replace(personal=("Dense_1",)))
    costs = []
    for some in (one, own):
        variables = some.task.init(jax.random.key(0), data.x)
        _, ctx, host = selector_inputs(some, data, jax.random.key(0), variables)
        costs.append(LEFL().upfront(ctx, host).down)
    assert costs[0] - costs[1] == 4 * (32 * 10 + 10)


def test_the_pre_phase_is_on_the_bill_of_the_first_round_alone():
    lefl = simulate(experiment(LEFL(epochs=3)), federation(devices=UniformLaw(low=0.5)), seeds=2)
    plain = simulate(experiment(Uniform()), federation(devices=UniformLaw(low=0.5)), seeds=2)
    p, flops = lefl.about["parameters"], lefl.about["forward_flops_per_example"]
    rows = len(DIGITS.y)
    extra = {
        "selection_bytes_down": 24 * (4 * p + PUBLIC.nbytes),
        "selection_bytes_up": 24 * 4 * 150 * 10,
        "selection_flops": (3 * 3 * rows + 24 * 150) * flops,
    }
    for name, value in extra.items():
        np.testing.assert_allclose(lefl[name][:, 0], value, rtol=1e-12)
        assert (lefl[name][:, 1:] == 0).all()
    assert (lefl["seconds"][:, 0] > 2 * plain["seconds"][:, 0]).all()
    assert (lefl["joules"][:, 0] > 2 * plain["joules"][:, 0]).all()


@pytest.mark.parametrize(
    ("selector", "data", "message"),
    [
        (LEFL(), {"public": None}, "lefl: there are no public examples to predict; give the federation some"),
        (LEFL(clusters=25), {}, "lefl: clusters is 25, but there are N = 24 clients"),
        (LEFL(), {"public": PUBLIC[:0]}, "there are 0 public examples"),
        (
            LEFL(),
            {"public": PUBLIC[:, :60]},
            r"150 public examples of shape \(60,\) .* like the examples of digits, of shape \(64,\)",
        ),
    ],
)
def test_bad_input(selector, data, message):
    with pytest.raises(ValueError, match=message):
        simulate(experiment(selector), federation(**data), seeds=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"allocation": "hamlton"}, "did you mean 'hamilton'"),
        ({"kl_direction": "papr"}, "did you mean 'paper'"),
        ({"epochs": 0}, "lefl: epochs is 0; it must be a whole number, at least 1"),
        ({"clusters": 0}, "lefl: clusters is 0; it must be a whole number, at least 1"),
        ({"fraction": 0.0}, r"lefl: fraction is 0.0; it must be in \(0, 1\]"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused_when_the_value_is_made(given, message):
    with pytest.raises(ValueError, match=message):
        LEFL(**given)


def test_a_trainer_without_epochs_is_refused():
    one = experiment(LEFL())
    one = one.replace(local_training=Alternating(SGD()), task=one.task.replace(personal=("Dense_0",)))
    with pytest.raises(ValueError, match=r"lefl: the pre-phase trains for .* epochs, which Alternating cannot be told"):
        simulate(one, federation(), seeds=1)


def test_the_shape_of_its_state_is_known_without_the_pre_phase(monkeypatch):
    one, data = experiment(LEFL()), federation().draw(0)
    variables = one.task.init(jax.random.key(0), data.x)
    key, ctx, host = selector_inputs(one, data, jax.random.key(0), variables)
    monkeypatch.setattr(LEFL, "soft_labels", lambda *args: pytest.fail("somebody trains"))
    shape = one.client_selection.state_shape(key, ctx, host)
    assert (shape.shape, shape.dtype) == ((24,), jnp.int32)
    with pytest.raises(ValueError, match="lefl: clusters is 25, but there are N = 24 clients"):
        LEFL(clusters=25).state_shape(key, ctx, host)


def test_the_pre_phase_is_compiled_once_for_all_seeds():
    from fedjax_sel.client_selection.lefl import map_trained_models

    before = map_trained_models.programs
    simulate(experiment(LEFL(epochs=4)), federation(data_seed=1), seeds=3)
    assert map_trained_models.programs == before + 1


@pytest.mark.skipif(jax.local_device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("clients", [1, 2, 5, 24])
@pytest.mark.parametrize("side_by_side", [1, None])
def test_devices_share_the_clients_of_the_pre_phase(clients, side_by_side):
    one, data = experiment(LEFL()), federation().draw(0)
    variables = one.task.init(jax.random.key(0), data.x)
    layout, some = Layout(clients=side_by_side, mesh=(1, 2)), jnp.arange(24)[::-1][:clients]
    key, ctx, host = selector_inputs(one, data, jax.random.key(0), variables, layout)
    assert host.devices == tuple(jax.local_devices()[:2])
    undivided = dataclasses.replace(host, devices=())
    both, first = (LEFL().run_pre_phase(predict_log_probs, PUBLIC, some, key, ctx, of) for of in (host, undivided))
    assert both.shape == (clients, 150, 10)
    np.testing.assert_allclose(both, first, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(jax.local_device_count() < 2, reason="needs two devices")
def test_a_run_lends_the_pre_phase_its_devices(monkeypatch):
    seen = []
    monkeypatch.setattr(LEFL, "soft_labels", lambda self, key, ctx, host: seen.append(host) or PRE_PHASE)
    devices = jax.local_device_count()
    for mesh in [(1, devices), (devices, 1)]:
        simulate(experiment(LEFL(), rounds=1), federation(), seeds=1, mesh=mesh)
        assert seen.pop().devices == tuple(jax.local_devices())


def no_pre_phase(monkeypatch):
    def fail(*args, **kwargs):
        pytest.fail("the pre-phase runs again")

    monkeypatch.setattr(lefl, "map_trained_models", fail)  # a method of its own would make it another selector


def assert_same(one, other):
    np.testing.assert_array_equal(one.selections, other.selections)
    for name in one.metrics:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, one.variables, other.variables)


def test_a_run_that_resumes_does_not_repeat_the_pre_phase(tmp_path, monkeypatch):
    given = {"seeds": 2, "chunk": 1, "checkpoints": Checkpoints(tmp_path, pause=0)}
    whole = simulate(experiment(LEFL()), federation(), seeds=2, chunk=1)
    simulate(experiment(LEFL()), federation(), callbacks=[lambda history: history.rounds == 1], **given)
    no_pre_phase(monkeypatch)
    rest = simulate(experiment(LEFL()), federation(), **given)
    assert rest.about["resumed_at"] == 1
    assert_same(whole, rest)


class Fails:
    def on_compiled(self, history):
        raise RuntimeError("the machine is lost")


def test_what_took_long_before_round_0_is_kept(tmp_path, monkeypatch):
    given = {"seeds": 2, "chunk": 1, "checkpoints": Checkpoints(tmp_path)}
    whole = simulate(experiment(LEFL()), federation(), seeds=2, chunk=1)
    with pytest.raises(RuntimeError, match="the machine is lost"):
        simulate(experiment(LEFL()), federation(), callbacks=[Fails()], **given)
    assert Checkpoints(tmp_path).rounds() == []
    monkeypatch.setattr(driver, "LONG", 0.0)
    with pytest.raises(RuntimeError, match="the machine is lost"):
        simulate(experiment(LEFL()), federation(), callbacks=[Fails()], **given)
    assert Checkpoints(tmp_path).rounds() == [0]
    no_pre_phase(monkeypatch)
    for other in (experiment(LEFL(), rounds=4), experiment(LEFL(log_base="2"))):
        with pytest.raises(ValueError, match="round-000000 is a checkpoint of another run"):
            simulate(other, federation(), **given)
    assert_same(whole, simulate(experiment(LEFL()), federation(), **given))
    assert Checkpoints(tmp_path).rounds()[-1] == 3


def test_a_pre_phase_whose_end_is_damaged_runs_again(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "LONG", 0.0)
    said = []
    given = {"seeds": 1, "checkpoints": Checkpoints(tmp_path, say=said.append)}
    with pytest.raises(RuntimeError, match="the machine is lost"):
        simulate(experiment(LEFL()), federation(), callbacks=[Fails()], **given)
    (tmp_path / "round-000000" / "_METADATA").write_text("{")
    given["checkpoints"] = Checkpoints(tmp_path, say=said.append)
    again = simulate(experiment(LEFL()), federation(), **given)
    assert "round-000000 is damaged" in said[0]
    assert "there is no other, so the run begins anew" in said[0]
    assert_same(simulate(experiment(LEFL()), federation(), seeds=1), again)


def test_few_can_be_reached():
    ctx = Context(jnp.int32(0), jnp.int32(5), jnp.ones(8, int), jnp.arange(8) < 2, cohort_size=4)
    cohort = LEFL(clusters=2).select(jax.random.key(0), jnp.array([0, 1, 0, 1, 0, 1, 0, 1]), ctx)
    assert sorted(cohort.client[cohort.mask].tolist()) == [0, 1]


@pytest.mark.parametrize("allocation", ["hamilton", "proportional"])
def test_a_cohort_of_fewer_slots_than_clusters_is_full_where_clients_of_few_can_be_reached(allocation):
    cluster = jnp.arange(30) % 5
    ctx = Context(jnp.int32(0), jnp.int32(5), jnp.ones(30, int), (cluster == 1) | (cluster == 3), cohort_size=3)
    for key in jax.random.split(jax.random.key(0), 8):
        cohort = LEFL(clusters=5, allocation=allocation).select(key, cluster, ctx)
        assert cohort.mask.all()
        assert set((cohort.client % 5).tolist()) <= {1, 3}


def test_quotas_of_many_clients_do_not_overflow():
    size = jnp.array([60_000, 5_000])
    assert quotas(size, 40_000).tolist() == [36_923, 3_077]


def test_more_slots_times_clients_than_32_bits_hold_are_refused():
    ctx = Context(jnp.int32(0), jnp.int32(5), jnp.ones(65_000, int), jnp.ones(65_000, bool), cohort_size=40_000)
    with pytest.raises(ValueError, match=r"m = 40,000 slots times N = 65,000 clients must be below 2\^31"):
        LEFL().check(ctx, Host(None, None, None))


def test_a_client_that_diverges_in_the_pre_phase_counts_as_untrained(monkeypatch):
    one, data = experiment(LEFL(clusters=2)), federation().draw(0)
    variables = one.task.init(jax.random.key(0), data.x)
    key, ctx, host = selector_inputs(one, data, jax.random.key(0), variables)
    right = PRE_PHASE.at[3, 5].set(jnp.nan).at[7].set(-jnp.inf)
    monkeypatch.setattr(lefl.LEFL, "run_pre_phase", lambda *args: right)
    with pytest.warns(UserWarning, match="lefl: the models of 2 of 24 clients diverged in the pre-phase, and count as"):
        found = one.client_selection.soft_labels(key, ctx, host)
    untrained = predict_log_probs(one.task, variables, host.data.public_x)
    np.testing.assert_allclose(found[3], untrained, atol=1e-5)
    np.testing.assert_allclose(found[7], untrained, atol=1e-5)
    np.testing.assert_array_equal(jnp.delete(found, jnp.array([3, 7]), axis=0), np.delete(PRE_PHASE, [3, 7], 0))
    assert set(np.asarray(one.client_selection.distances(found)).ravel() >= 0) == {True}


def test_divergences_beyond_all_numbers_are_clustered():
    sure = jnp.full((6, 4, 3), -3e38).at[:, :, 0].set(0.0).at[3:].set(-1.0)
    far = LEFL(clusters=2).distances(sure)
    assert np.isfinite(np.square(far)).all()
    assert len({*cluster_clients(far, 2)[:3]}) == len({*cluster_clients(far, 2)[3:]}) == 1


def test_a_rate_that_is_far_too_large_ends_the_seeds_and_not_the_run():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        history = simulate(experiment(LEFL(clusters=2), learning_rate=1e6, momentum=0.9), federation(), seeds=2)
    assert np.isnan(history["loss"][:, -1]).all()
    words = [str(one.message) for one in said]
    assert sum(word.startswith("lefl: the models of") for word in words) == 2
    assert any("2 of 2 seeds diverged" in word for word in words)
