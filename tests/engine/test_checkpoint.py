"""A run that was stopped goes on as if it had not been."""

import dataclasses
import functools
from dataclasses import replace
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.data import sources
from fedjax_sel.data.dataset import dataset
from fedjax_sel.data.federation import Federation
from fedjax_sel.data.partition import Iid
from fedjax_sel.devices.availability import Function
from fedjax_sel.engine import checkpoint, mark
from fedjax_sel.engine.checkpoint import SPARE, Checkpoints, Point
from fedjax_sel.engine.driver import simulate
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.mark import mark_of
from fedjax_sel.engine.state import RoundState
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.pytree import Pytree, static
from fedjax_sel.task import Task


@pytest.fixture(scope="module")
def data():
    return Federation(sources.load("iris"), Iid(clients=12))


def experiment(client_selection=None, rounds=6):
    task = Task(LogisticRegression(classes=3))
    return Experiment(
        task, client_selection=client_selection or RoundRobin(), cohort_size=3, rounds=rounds, evaluate_every=2
    )


def same(a, b):
    assert a.seeds == b.seeds
    assert list(a.metrics) == list(b.metrics)
    for name in a.metrics:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        assert a[name].dtype == b[name].dtype
    np.testing.assert_array_equal(a.selections, b.selections)
    jax.tree.map(np.testing.assert_array_equal, a.variables, b.variables)


def stopped_after(rounds):
    return lambda history: history.rounds >= rounds


@pytest.mark.parametrize("selector", [Entropy(epsilon=0.3), RoundRobin()], ids=["stateless", "with state"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(data, tmp_path, selector):
    whole = simulate(experiment(selector), data, seeds=2, chunk=2)
    first = simulate(
        experiment(selector), data, seeds=2, chunk=2, checkpoints=Checkpoints(tmp_path), callbacks=[stopped_after(2)]
    )
    assert first.rounds == 2
    rest = simulate(experiment(selector), data, seeds=2, chunk=2, checkpoints=Checkpoints(tmp_path))
    assert rest.about["resumed_at"] == 2
    same(whole, rest)


def test_a_finished_run_is_restored_without_another_round(data, tmp_path):
    whole = simulate(experiment(), data, seeds=2, checkpoints=Checkpoints(tmp_path))

    def never(history):
        raise AssertionError("a round was run")

    again = simulate(experiment(), data, seeds=2, checkpoints=Checkpoints(tmp_path), callbacks=[never])
    same(whole, again)
    jax.tree.map(np.testing.assert_array_equal, whole.variables, Checkpoints(tmp_path).variables())


def test_the_last_two_are_kept(data, tmp_path):
    simulate(experiment(), data, chunk=1, checkpoints=Checkpoints(tmp_path, pause=0.0))
    assert Checkpoints(tmp_path).rounds() == [5, 6]


def test_a_short_run_saves_only_its_end(data, tmp_path):
    simulate(experiment(), data, chunk=1, checkpoints=Checkpoints(tmp_path, pause=3600.0))
    assert Checkpoints(tmp_path).rounds() == [6]


@dataclasses.dataclass
class Clock:
    """Time that goes on only where it is told to, and by what a save takes."""

    now: float = 100.0
    a_save: float = 4.0

    def write(self, path, arrays):
        path.mkdir(parents=True)
        began, self.now = self.now, self.now + self.a_save
        return SimpleNamespace(began=began, ended=self.now, wait=lambda: None)


@pytest.fixture
def clock(monkeypatch):
    mine = Clock()
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: mine.now))
    monkeypatch.setattr(checkpoint, "write", mine.write)
    return mine


def point(number):
    return Point(number, RoundState({"w": jnp.ones((1, 2))}, (), (), jnp.ones(1, bool)), {}, 0.0)


def saves(checkpoints, number, **how):
    """Whether this one is saved."""
    if checkpoints.due(number, **how):
        checkpoints.save(point(number), "00")
    return checkpoints.saved == number


def test_saves_leave_so_many_times_what_the_last_one_took(clock, tmp_path):
    checkpoints = Checkpoints(tmp_path, pause=1.0)
    clock.now += 0.9
    assert not saves(checkpoints, 1), "the pause is not over"
    clock.now += 0.2
    assert saves(checkpoints, 2)
    clock.now += SPARE * 4.0 - 0.1
    assert not saves(checkpoints, 3)
    clock.now += 0.2
    clock.a_save = 0.01
    assert saves(checkpoints, 4)
    clock.now += 0.9
    assert not saves(checkpoints, 5), "the last save took little, but the pause holds"
    clock.now += 0.2
    assert saves(checkpoints, 6)
    checkpoints.finish()
    assert checkpoints.rounds() == [4, 6]


def test_a_save_that_must_be_now_is_made_whatever_the_last_one_took(clock, tmp_path):
    clock.a_save = 1000.0
    checkpoints = Checkpoints(tmp_path, pause=3600.0)
    assert [saves(checkpoints, number, now=True) for number in (1, 2, 3)] == [True] * 3
    assert not saves(checkpoints, 4)
    checkpoints.finish()
    assert checkpoints.rounds() == [2, 3]


def test_saves_take_at_most_a_tenth_of_a_long_run(clock, tmp_path):
    checkpoints, began, saved = Checkpoints(tmp_path), clock.now, 0
    for number in range(1, 2001):
        clock.now += 0.5
        saved += saves(checkpoints, number)
    assert 0 < saved * clock.a_save <= (clock.now - began) / (1 + SPARE) + clock.a_save


def test_clearing_removes_the_folder(clock, tmp_path):
    checkpoints = Checkpoints(tmp_path / "points")
    checkpoints.clear()
    assert saves(checkpoints, 1, now=True)
    assert (tmp_path / "points").is_dir()
    checkpoints.clear()
    assert not (tmp_path / "points").exists()
    assert checkpoints.rounds() == []
    assert tmp_path.is_dir()


def spoil_file(path):
    for file in path.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def spoil_content(path):
    arrays = checkpoint.read(path)
    changed = {**arrays, "state.variables.params.bias": arrays["state.variables.params.bias"] + 1}
    as_written = checkpoint.digest(arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "digest", lambda _: as_written)
        spoil_folder(path)
        path.rmdir()
        checkpoint.write(path, changed).wait()


def spoil_folder(path):
    for file in sorted(path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()


@pytest.mark.parametrize("spoil", [spoil_file, spoil_content, spoil_folder])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(data, tmp_path, spoil):
    whole = simulate(experiment(), data, chunk=2)
    simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path, pause=0.0), callbacks=[stopped_after(4)])
    spoil(tmp_path / "round-000004")
    said = []
    rest = simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path, pause=0.0, say=said.append))
    (line,) = said
    assert "round-000004 is damaged" in line
    assert line.endswith("using the one before it")
    assert rest.about["resumed_at"] == 2
    same(whole, rest)
    assert Checkpoints(tmp_path).rounds() == [4, 6]


def test_a_run_whose_end_is_damaged_goes_on_to_more_rounds_from_the_one_before(data, tmp_path):
    simulate(experiment(rounds=6), data, chunk=2, checkpoints=Checkpoints(tmp_path, pause=0.0))
    spoil_file(tmp_path / "round-000006")
    said = []
    more = simulate(experiment(rounds=8), data, chunk=2, checkpoints=Checkpoints(tmp_path, say=said.append))
    assert ["round-000006 is damaged" in line for line in said] == [True]
    assert more.about["resumed_at"] == 4
    same(simulate(experiment(rounds=8), data, chunk=2), more)
    with pytest.raises(ValueError, match="is a checkpoint of another run"):
        simulate(experiment(Entropy(epsilon=0.1), rounds=9), data, checkpoints=Checkpoints(tmp_path))


def test_with_nothing_readable_the_run_starts_from_the_beginning(data, tmp_path):
    simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path), callbacks=[stopped_after(2)])
    spoil_file(tmp_path / "round-000002")
    said = []
    again = simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path, say=said.append))
    (line,) = said
    assert line.endswith("there is no other, so the run begins anew")
    assert "resumed_at" not in again.about
    same(simulate(experiment(), data, chunk=2), again)


def test_a_checkpoint_of_another_run_is_refused(data, tmp_path):
    mine = experiment(Entropy(epsilon=0.1))
    simulate(mine, data, checkpoints=Checkpoints(tmp_path))
    with pytest.raises(ValueError, match="of another run"):
        simulate(experiment(Entropy(epsilon=0.2)), data, checkpoints=Checkpoints(tmp_path))
    with pytest.raises(ValueError, match="of another run"):
        simulate(mine, data, seeds=[1], checkpoints=Checkpoints(tmp_path))


def test_a_checkpoint_of_another_number_of_devices_says_how_to_go_on(data, tmp_path, monkeypatch):
    mine = experiment(Entropy(epsilon=0.1))
    with monkeypatch.context() as other:
        other.setattr(checkpoint.jax, "device_count", lambda: 3)
        simulate(mine, data, checkpoints=Checkpoints(tmp_path))
    with pytest.raises(
        ValueError, match=rf"of a run on 3 devices, and not on {jax.device_count()}, .*or use another folder"
    ):
        simulate(experiment(Entropy(epsilon=0.2)), data, checkpoints=Checkpoints(tmp_path))


@pytest.mark.parametrize("name", ["x", "test_x", "test_y", "public_x"])
@pytest.mark.parametrize("whole", [2**28, 400], ids=["every byte", "the first and the last row"])
def test_other_examples_are_another_run_wherever_they_lie(name, whole, tmp_path, monkeypatch):
    """One number of one example changes, in place and behind the same labels."""
    monkeypatch.setattr(mark, "WHOLE", whole)
    monkeypatch.setattr(mark, "BLOCK", 100)
    source = sources.load("iris", validation=0.2)
    data = Federation(source, Iid(clients=12), public=source.x[:40] + 1).draw(0)
    go_on = functools.partial(simulate, experiment(), seeds=2, chunk=2, checkpoints=Checkpoints(tmp_path))
    go_on(data, callbacks=[stopped_after(2)])
    assert go_on(data, examples_on="host", callbacks=[stopped_after(4)]).about["resumed_at"] == 2
    changed = np.array(getattr(data, name))
    changed[(-1,) * changed.ndim] = 1 - changed[(-1,) * changed.ndim]
    with pytest.raises(ValueError, match=r"of another run \(other data, seeds"):
        go_on(dataclasses.replace(data, **{name: changed}))
    assert go_on(data).about["resumed_at"] == 4


def test_of_large_examples_blocks_from_all_over_the_array_count(monkeypatch):
    monkeypatch.setattr(mark, "WHOLE", 4000)
    monkeypatch.setattr(mark, "BLOCK", 100)
    rows = np.arange(40_000, dtype=np.uint8).reshape(-1, 4)
    before = mark.digest_examples([rows, rows, None])
    assert (before[0] == before[1]).all()
    assert (before[0] != before[2]).any()
    found = []
    for start in range(0, len(rows), 250):
        changed = rows.copy()
        changed[start : start + 250] += 1
        found.append((mark.digest_examples([changed]) != before[:1]).any())
    assert all(found), "nothing as long as the distance of two blocks can change unnoticed"
    read = sum(end - start for start, end in mark.choose_blocks(len(rows), rows.nbytes)) * 4
    assert 0.9 * mark.WHOLE < read <= mark.WHOLE


@pytest.mark.parametrize("by", [1, 2])
def test_another_function_is_another_run(data, tmp_path, by):
    """The same code with the same values is the same run, wherever it lies in memory."""

    def of(number):
        return experiment().replace(availability=Function(lambda round, n: jnp.arange(n) % (number + 1) < number))

    points = Checkpoints(tmp_path, pause=0)
    simulate(of(1), data, chunk=2, checkpoints=points, callbacks=[lambda history: True])
    if by == 1:
        assert simulate(of(1), data, chunk=2, checkpoints=Checkpoints(tmp_path)).about["resumed_at"] == 2
    else:
        with pytest.raises(ValueError, match="another run"):
            simulate(of(2), data, chunk=2, checkpoints=Checkpoints(tmp_path))


def test_a_function_is_known_by_what_it_computes_and_not_by_where_it_lies():
    def adding(number, *, twice=1):
        def again(x):
            return x if x > number else again(x + twice)  # closes over itself

        return again

    def called(function, round, n):
        return function(round)

    def mark(function):
        return mark_of(Function(lambda round, n: function(round)), Function(functools.partial(called, adding(3))))

    assert mark(adding(2)) == mark(adding(2))
    assert mark(adding(2)) != mark(adding(3))
    assert mark(adding(2)) != mark(adding(2, twice=2))
    three, four = (mark_of(Function(functools.partial(called, adding(k)))) for k in (3, 4))
    assert three != four


def test_a_static_set_has_one_mark_in_whichever_order_python_holds_it():
    class Named(Pytree):
        names: frozenset = static()

    eight_first, zero_first = frozenset([8, 0]), frozenset([0, 8])
    assert str(eight_first) != str(zero_first)
    assert mark_of(Named(eight_first)) == mark_of(Named(zero_first)) != mark_of(Named(frozenset([0])))


def test_only_the_first_process_says_when_a_save_is_due(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "is_first", lambda: False)
    checkpoints = Checkpoints(tmp_path, pause=1.0)
    clock.now += 10
    assert not checkpoints.due(1)
    assert checkpoints.due(1, now=True)


def test_only_a_finished_run_goes_on_to_another_number_of_rounds(data, tmp_path):
    simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path), callbacks=[stopped_after(2)])
    with pytest.raises(ValueError, match="of another run"):
        simulate(experiment(rounds=7), data, chunk=2, checkpoints=Checkpoints(tmp_path))


def test_an_error_of_a_callback_costs_no_round_that_was_computed(data, tmp_path):
    def fail(history):
        if history.rounds == 4:
            raise RuntimeError("no connection")

    points = Checkpoints(tmp_path / "points", pause=3600.0)
    with pytest.raises(RuntimeError, match="no connection"):
        simulate(experiment(), data, chunk=2, checkpoints=points, callbacks=[fail])
    assert points.rounds()[-1] == 4
    history = simulate(experiment(), data, chunk=2, checkpoints=points)
    assert history.about["resumed_at"] == 4
    same(history, simulate(experiment(), data, chunk=2))


class FarAway(nn.Module):
    """A model whose loss on an example that is far away is not finite, while its parameters are."""

    @nn.compact
    def __call__(self, x):
        return jnp.where(jnp.abs(x).max() > 100, jnp.nan, 1.0) * nn.Dense(3)(x)


@pytest.mark.parametrize(("last", "round"), [(1, 3), (2, 2)])
def test_a_seed_that_an_evaluation_ended_which_only_the_shorter_run_makes_is_not_given_more_rounds(
    last, round, tmp_path
):
    iris = sources.load("iris")
    far = dataset("far", iris.x, iris.y, test=(1000 * iris.test_x, iris.test_y))
    clients = Federation(far, Iid(clients=12))
    run = Experiment(Task(FarAway()), cohort_size=3, rounds=3, evaluate_every=8, evaluate_last=last)
    with pytest.warns(UserWarning, match="1 of 1 seed diverged"):
        simulate(run, clients, chunk=1, checkpoints=Checkpoints(tmp_path))
    with pytest.raises(ValueError, match=rf"seed 0 ended in round {round}, perhaps in an evaluation that a run of 7"):
        simulate(replace(run, rounds=7), clients, chunk=1, checkpoints=Checkpoints(tmp_path))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(24, "Too many open files"),
        PermissionError(13, "denied"),
        ValueError("PERMISSION_DENIED: Error opening file"),
        ValueError("RESOURCE_EXHAUSTED: Error opening file: Too many open files"),
    ],
)
def test_what_cannot_be_read_now_is_not_damaged_and_is_kept(data, tmp_path, monkeypatch, error):
    simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path), callbacks=[stopped_after(4)])

    def fail(path):
        raise error

    kept = Checkpoints(tmp_path).rounds()
    monkeypatch.setattr(checkpoint, "read", fail)
    with pytest.raises(OSError if isinstance(error, ValueError) else type(error)):
        simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path))
    assert Checkpoints(tmp_path).rounds() == kept
    with pytest.raises(OSError if isinstance(error, ValueError) else type(error)):
        Checkpoints(tmp_path).variables()


def test_the_model_of_the_newest_undamaged_checkpoint_is_given(data, tmp_path):
    simulate(experiment(), data, chunk=2, checkpoints=Checkpoints(tmp_path, pause=0.0))
    points = Checkpoints(tmp_path)
    before = points.variables_after(4)
    spoil_file(tmp_path / "round-000006")
    jax.tree.map(np.testing.assert_array_equal, points.variables(), before)
    spoil_file(tmp_path / "round-000004")
    assert points.variables() is None


def test_what_was_cleared_is_saved_again_by_the_same_object(data, tmp_path):
    points = Checkpoints(tmp_path)
    for selector in (Entropy(epsilon=0.1), Entropy(epsilon=0.2)):
        simulate(experiment(selector), data, checkpoints=points)
        assert points.rounds()[-1] == 6
        points.clear()
