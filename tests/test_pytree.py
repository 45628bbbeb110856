"""A compiled program is never run for a value of another class, whoever wrote it."""

import dataclasses
import itertools
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from fedjax_sel import Experiment, Federation, Task, partition, simulate
from fedjax_sel.catalog import available, load
from fedjax_sel.client_selection import cohort_of
from fedjax_sel.compiled import jit, list_classes
from fedjax_sel.devices.availability import Bernoulli
from fedjax_sel.engine.experiment import BASES, stack_experiments
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.pytree import Pytree, param, static
from fedjax_sel.types import Context

KINDS = ("client_selection", "data_selection", "local_training", "correction", "aggregation")
REDEFINITIONS, SIMULATED = 40, 5


def fixed(client):
    """A selector that always chooses one client, as a notebook cell that is edited and run again defines it."""

    class Mine(ClientSelector):
        def select(self, key, state, ctx):
            return cohort_of(jnp.full(1, client), jnp.ones(1, bool))

    return Mine()


def registered(value):
    """A user's class of `flax.struct` that says who it is."""

    @struct.dataclass
    class Mine:
        scale: float = 1.0

        def who(self):
            return self.scale * value

    return Mine()


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="JAX compared classes until 0.10")
def test_flax_struct_alone_cannot_tell_two_classes_apart():
    """Why this file is needed; where it fails, JAX compares classes again and `jit` may be plain."""
    assert jax.tree.structure(registered(0)) == jax.tree.structure(registered(1))


def test_no_two_strategies_of_the_library_have_equal_definitions():
    names = [(kind, name) for kind in KINDS for name in available(f"fedjax_sel.{kind}")]
    trees = {name: jax.tree.structure(load(f"fedjax_sel.{name[0]}", name[1])()) for name in names}
    assert len(trees) > 20
    for one, other in itertools.combinations(trees, 2):
        assert trees[one] != trees[other], f"{one} and {other}"


def test_no_two_signals_of_the_library_have_equal_definitions():
    from fedjax_sel import signals

    trees = {name: jax.tree.structure(getattr(signals, name)()) for name in dir(signals)}
    for one, other in itertools.combinations(trees, 2):
        assert trees[one] != trees[other], f"{one} and {other}"


def test_redefinitions_of_a_selector_run_as_many_programs(blobs):
    data = Federation(blobs, partition.Iid(clients=SIMULATED))
    task = Task(LogisticRegression(classes=3))
    before = run_chunk.programs
    for client in range(SIMULATED):
        history = simulate(Experiment(task, fixed(client), cohort_size=1, rounds=1), data, chunk=1)
        assert history.selections.ravel().tolist() == [client]
    assert run_chunk.programs == before + SIMULATED
    simulate(Experiment(task, fixed(0), cohort_size=1, rounds=1), data, chunk=1)
    assert run_chunk.programs == before + SIMULATED + 1, "a class of its own each time it is defined"


@pytest.mark.parametrize("part", [*BASES, "task"])
def test_forty_redefinitions_of_any_part_run_forty_programs(part):
    """By the way that every compiled entry point takes, with a part that only says who it is."""

    @jit()
    def ask(experiment):
        return getattr(experiment, part).who()

    base = Experiment(Task(LogisticRegression(classes=3)), fine_tuning=SGD())
    for i in range(REDEFINITIONS):

        class Mine(type(getattr(base, part))):
            scale: float = 1.0

            def who(self, i=i):
                return self.scale * i

        mine = Mine(LogisticRegression(classes=3)) if part == "task" else Mine()
        assert ask(dataclasses.replace(base, **{part: mine})) == i
        assert ask(dataclasses.replace(base, **{part: mine.replace(scale=2.0)})) == 2 * i
    assert ask.programs == REDEFINITIONS, "another float is no other program"


def test_forty_classes_of_flax_struct_run_forty_programs():
    ask = jit()(lambda tree: tree[0].who())
    for i in range(REDEFINITIONS):
        mine = registered(i)
        assert ask([mine]) == i
        assert ask([mine.replace(scale=2.0)]) == 2 * i
    assert ask.programs == REDEFINITIONS


def test_a_part_within_a_part_counts_too():
    def signal(value):
        @struct.dataclass
        class Inner:
            pass

        Inner.value = value
        return [{"inner": (Inner(),)}]

    @jit()
    def ask(tree):
        return jnp.asarray(tree[0]["inner"][0].value)

    assert [int(ask(signal(i))) for i in range(REDEFINITIONS)] == list(range(REDEFINITIONS))


def test_experiments_of_different_classes_share_no_program():
    task = Task(LogisticRegression(classes=3))
    with pytest.raises(ValueError, match="differ in floats alone, but two of these differ in"):
        stack_experiments([Experiment(task, fixed(0)), Experiment(task, fixed(1))])


class Point(Pytree):
    """Fields of every kind."""

    x: float = param(default=1.0, low=0, high=2)
    y: float | None = param(default=None, above=0, below=1)
    count: int = static(default=3, low=1)
    name: str = static(default="a", choices=["a", "b"])


def test_leaves_are_what_is_not_static():
    leaves, tree = jax.tree.flatten(Point(x=0.5, y=0.25))
    assert leaves == [0.5, 0.25]
    assert tree.unflatten(leaves) == Point(x=0.5, y=0.25)
    assert [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(Point())] == [".x"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": -0.1}, r"Point: x is -0.1; it must be in \[0, 2\]"),
        ({"x": float("nan")}, r"x is nan; it must be in"),
        ({"x": "1"}, r"x is '1'; it must be a number in"),
        ({"x": None}, r"x is None; it must be a number in"),
        ({"x": True}, r"x is True; it must be a number in"),
        ({"x": np.array([0.5, 2.5])}, r"x is array\(\[0.5, 2.5\]\); it must be in \[0, 2\]"),
        ({"y": 0.0}, r"y is 0.0; it must be in \(0, 1\)"),
        ({"y": jnp.float32(1)}, r"y is .*; it must be in \(0, 1\)"),
        ({"count": 0}, r"count is 0; it must be a whole number, at least 1"),
        ({"count": 1.0}, r"count is 1.0; it must be a whole number"),
        ({"name": "c"}, r"Point: name is 'c'; it must be one of a, b"),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=message):
        Point(**given)


def test_numbers_of_jax_and_numpy_are_taken_like_those_of_python():
    assert Point(x=np.float32(0.5), count=np.int64(2)).count == 2
    assert float(Point(x=jnp.asarray(0.5)).x) == 0.5


def test_traced_values_and_shapes_pass():
    assert float(jax.jit(lambda x: Point(x=x).replace(name="b").x)(5.0)) == 5.0
    assert jax.eval_shape(lambda p: p, Point()).x.shape == ()


def test_a_second_post_init_would_hide_the_checks():
    with pytest.raises(TypeError, match="Mine defines __post_init__; what it checks belongs in __check_init__"):

        class Mine(Pytree):
            def __post_init__(self):
                pass


def test_classes_are_told_by_identity():
    one, other = registered(0), registered(0)
    assert list_classes(one) != list_classes(other)
    assert list_classes((one, [other])) == (tuple, type(one), list, type(other))


class Fixed(Pytree):
    """A static field of any type, and a number."""

    which: Any = static(default=1)
    rate: float = param(default=1.0)


def test_values_that_are_equal_and_of_different_types_are_different_programs():
    """`1 == 1.0 == True`."""
    trees = {jax.tree.structure(Fixed(which)) for which in (1, 1.0, True, np.int64(1))}
    assert len(trees) == 3
    assert jax.tree.map(lambda x: x, Fixed(1.0)).which == 1.0
    one, all_of_them = (Experiment(Task(LogisticRegression(classes=3)), cohort_size=m) for m in (1, 1.0))
    with pytest.raises(ValueError, match=r"two of these differ in cohort_size \(1 and 1\.0\)"):
        stack_experiments([one, all_of_them])


def test_whole_numbers_of_parameters_are_floats_like_all_others():
    assert isinstance(Fixed(rate=2).rate, float)

    class Rated(ClientSelector):
        rate: float = param(default=1.0)

        def select(self, key, state, ctx):
            return fixed(0).select(key, state, ctx)

    stacked, _ = stack_experiments([Experiment(Task(LogisticRegression(classes=3)), Rated(r)) for r in (1, 0.1)])
    np.testing.assert_allclose(stacked.client_selection.rate, [1, 0.1])


def test_fields_of_floats_that_are_given_whole_numbers_are_floats_with_and_without_a_range():
    class Plain(Pytree):
        start: float = 0
        several: tuple[float, ...] = (1, 0.5)
        either: int | float = 1
        count: int = 1
        fixed: float = static(default=2)
        none: float | None = None

    one = Plain(start=np.int64(3))
    assert [type(x) for x in (one.start, *one.several, one.fixed)] == [float] * 4
    assert [type(x) for x in (Plain().start, one.either, one.count, one.none)] == [float, int, int, type(None)]
    assert jax.tree.structure(Plain(fixed=2)) == jax.tree.structure(Plain(fixed=2.0)), "one program"
    assert Plain(start=True).start is True, "no number"


def test_a_state_that_begins_with_a_whole_number_is_that_of_a_float():
    class Half(ClientSelector):
        start: float = 0.5

        def init(self, key, ctx, host):
            return jnp.full(ctx.num_clients, self.start)

        def select(self, key, state, ctx):
            return fixed(0).select(key, state, ctx)

    ctx = Context(jnp.int32(0), jnp.int32(1), jnp.ones(3, int), jnp.ones(3, bool), cohort_size=1)
    assert Half(start=1).init(None, ctx, None).dtype == Half(start=1.0).init(None, ctx, None).dtype == jnp.float32
    experiments = [Experiment(Task(LogisticRegression(classes=3)), Half(start)) for start in (0, 1)]
    np.testing.assert_array_equal(stack_experiments(experiments)[0].client_selection.start, [0.0, 1.0])


def test_options_of_the_cpus_compiler_stay_on_cpus(monkeypatch):
    def make():
        return jit(cpu_options={"xla_no_such_option": True})(jnp.sin)

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with pytest.raises(Exception, match="xla_no_such_option"):
        make()(1.0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert make()(0.0) == 0.0


def test_experiments_whose_numbers_differ_in_shape_share_no_program():
    task = Task(LogisticRegression(classes=3))
    each = [Experiment(task, availability=Bernoulli(p)) for p in (0.5, np.full(5, 0.7))]
    with pytest.raises(ValueError, match=r"differ in the shape of availability.p \(\(\) and \(5,\)\); run them one"):
        stack_experiments(each)


class Reloaded(Pytree):
    """What `%autoreload` changes in place."""

    sign: float = param(default=1.0)


def test_code_that_is_reloaded_in_place_has_its_new_fields_and_defaults():
    def made_anew():
        class Reloaded(Pytree):
            sign: float = param(default=-1.0)
            shift: float = param(default=5.0)
            how: str = static(default="up")

        return Reloaded

    before, new = Reloaded(), made_anew()
    assert jax.tree.leaves(before) == [1.0]
    Reloaded.__init__.__dict__.update(new.__init__.__dict__)  # as for every function that both classes have
    for name in ("__dataclass_fields__", "sign", "shift", "how"):
        setattr(Reloaded, name, getattr(new, name))
    after = Reloaded(shift=2.0)
    assert jax.tree.leaves(after) == [-1.0, 2.0]
    assert jax.tree.map(lambda x: 2 * x, after) == Reloaded(sign=-2.0, shift=4.0)
    with pytest.raises(TypeError, match="did you mean 'shift'"):
        Reloaded(shit=2.0)


@pytest.mark.parametrize("pickler", ["cloudpickle", "dill"])
def test_a_class_of_a_notebook_keeps_its_fields_in_another_process(pickler, tmp_path):
    """Both pickle such a class with its code, and make it before its fields are there."""
    pytest.importorskip(pickler)
    script = f"""
import sys, {pickler} as pickler, jax, fedjax_sel as fs
class Mine(fs.ClientSelector):
    sign: float
    scale: float = fs.param(default=2.0)
    how: str = fs.static(default="up")
    def select(self, key, state, ctx): return self.sign
if __name__ == "__main__" and len(sys.argv) > 1:
    open(sys.argv[1], "wb").write(pickler.dumps([Mine(-1.0), Mine(1.0, how="down")]))
"""
    (tmp_path / "made.py").write_text(script)
    reads = f"import {pickler} as p, jax, sys\nfor one in p.load(open(sys.argv[1], 'rb')):\n"
    reads += "    print(jax.tree.leaves(jax.tree.map(lambda x: 3 * x, one)), one.how, one.select(0, 0, 0))"
    file = str(tmp_path / "kept")
    run = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path}
    subprocess.run([sys.executable, "made.py", file], **run)
    (tmp_path / "made.py").unlink()
    said = subprocess.run([sys.executable, "-c", reads, file], **run).stdout
    assert said.splitlines() == ["[-3.0, 6.0] up -1.0", "[3.0, 6.0] down 1.0"]
