"""User code is known by what it computes: a changed class, global or closure is another program and another run."""

import functools
import importlib
import os
import subprocess
import sys
import textwrap
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel import Experiment, Federation, partition, simulate
from fedjax_sel.client_selection import top_m
from fedjax_sel.code import describe, describe_own
from fedjax_sel.compiled import jit
from fedjax_sel.devices.availability import Function
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.models.mlp import MLP

CELL = """
import jax.numpy as jnp
import fedjax_sel as fs
from fedjax_sel.client_selection import top_m

SIGN = 1.0

def score(n):
    return SIGN * jnp.arange(n, dtype=jnp.float32)

class Mine(fs.ClientSelector):
    def select(self, key, state, ctx):
        return top_m(key, score(ctx.num_clients), ctx.available, ctx.m)
"""


def run_cell(text, names=None):
    """What a notebook's cell does."""
    names = {"__name__": "notebook"} if names is None else names
    exec(compile(textwrap.dedent(text), "cell 1", "exec"), names)
    return names


@pytest.fixture(scope="module")
def federation():
    return Federation(fs.load("iris"), partition.Iid(clients=6))


def experiment(selector, rounds=4):
    return Experiment(
        fs.Task.on(MLP(classes=3), fs.load("iris")), client_selection=selector, cohort_size=2, rounds=rounds
    )


CHANGES = {
    "a global number": "SIGN = -1.0",
    "a function that a method calls": "def score(n):\n    return -jnp.arange(n, dtype=jnp.float32)",
    "the class": CELL.replace("top_m(key, score", "top_m(key, -score"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_notebook_changes_counts_in_the_next_run_and_is_not_mixed_with_older_rounds(
    federation, change, tmp_path
):
    names = run_cell(CELL)
    largest = simulate(experiment(names["Mine"]()), federation, chunk=2)
    assert set(largest.selections.ravel().tolist()) == {4, 5}
    before = run_chunk.programs
    simulate(experiment(names["Mine"]()), federation, chunk=2)
    assert run_chunk.programs == before, "nothing has changed"
    first = simulate(
        experiment(names["Mine"]()),
        federation,
        chunk=2,
        checkpoints=Checkpoints(tmp_path),
        callbacks=[lambda history: history.rounds >= 2],
    )
    assert first.rounds == 2
    run_cell(CHANGES[change], names)
    smallest = simulate(experiment(names["Mine"]()), federation, chunk=2)
    assert set(smallest.selections.ravel().tolist()) == {0, 1}
    with pytest.raises(ValueError, match="of another run"):
        simulate(experiment(names["Mine"]()), federation, chunk=2, checkpoints=Checkpoints(tmp_path))


def table(rows):
    return Function(lambda round, n: jnp.asarray(rows)[round % 2])


class Reachable:
    def __init__(self, odd):
        self.odd = odd

    def __call__(self, round, n):
        return (jnp.arange(n) % 2 == 1) == self.odd


def weigh(by):
    return lambda round, n: jnp.arange(n) < by["k"]


PAIRS = {
    "arrays": (table(np.eye(2, 6, dtype=bool)), table(~np.eye(2, 6, dtype=bool))),
    "arrays of jax": (table(jnp.eye(2, 6, dtype=bool)), table(~jnp.eye(2, 6, dtype=bool))),
    "dictionaries": (Function(weigh({"k": 2})), Function(weigh({"k": 3}))),
    "numbers of numpy": (Function(weigh({"k": np.int64(2)})), Function(weigh({"k": np.int64(3)}))),
    "compiled functions": (Function(jax.jit(lambda r, n: n > 1)), Function(jax.jit(lambda r, n: n > 2))),
    "objects that are called": (Function(Reachable(odd=True)), Function(Reachable(odd=False))),
    "methods": (Function(Reachable(odd=True).__call__), Function(Reachable(odd=False).__call__)),
    "partial functions": tuple(Function(functools.partial(lambda r, n, k: n > k, k=k)) for k in (1, 2)),
    "constants": (Function(lambda r, n: n in {1, 2}), Function(lambda r, n: n in {1, 3})),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_functions_differ_by_all_that_they_hold(kind):
    one, other = PAIRS[kind]
    assert describe_own(one) == describe_own(one)
    assert describe_own(one) != describe_own(other)


NET = """
from typing import Any
import flax.linen as nn

class Net(nn.Module):
    activation: Any = None

    @nn.compact
    def __call__(self, x):
        return {}
"""


def test_a_model_differs_by_its_functions_and_by_its_class():
    net = run_cell(NET.format("self.activation(x)"))["Net"]
    assert describe(net(lambda x: jnp.maximum(x, 0))) != describe(net(lambda x: jnp.tanh(x)))
    linear, twice = (run_cell(NET.format(f"nn.Dense(3)({x})"))["Net"]() for x in ("x", "2 * x"))
    assert describe(linear) != describe(twice)


def test_what_a_function_notes_while_it_runs_does_not_count():
    names = run_cell(
        """
        import numpy as np
        seen, calls, table = [], 0, np.zeros(5)
        def f(x):
            global calls
            calls += 1
            seen.append(x)
            table[x] = x
            return x
        class Counter:
            def __init__(self, step):
                self.step, self.calls = step, 0
            def change(self, step):
                self.step = step
            def __call__(self, x):
                self.calls += self.step
        counter = Counter(2)
        def g(x):
            counter(x)
        """
    )
    before = describe(names["f"]), describe(names["g"])
    names["f"](3), names["g"](3)
    assert (names["calls"], names["seen"], names["table"][3], names["counter"].calls) == (1, [3], 3, 2)
    assert (describe(names["f"]), describe(names["g"])) == before
    names["counter"].change(3)
    assert describe(names["g"]) != before[1]


READS = """
import argparse, collections, dataclasses, decimal, enum, functools, operator, pathlib, types
import jax
import numpy as np
import optax
import pandas as pd
import scipy.stats
import jax.numpy as jnp
import fedjax_sel as fs
from fedjax_sel.client_selection import top_m
from sklearn.linear_model import LinearRegression

@dataclasses.dataclass(frozen=True)
class Config:
    sign: float

class Sign(enum.Enum):
    UP = 1.0
    DOWN = -1.0

class Slots:
    __slots__ = ("sign",)
    def __init__(self, sign):
        self.sign = sign

@jax.custom_jvp
def ruled(x):
    return x

ruled.defjvp(lambda primals, tangents: (primals[0], {rule} * tangents[0]))

@jax.custom_vjp
def reversed_rule(x):
    return x

reversed_rule.defvjp(lambda x: (x, None), lambda _, g: ({rule} * g,))

def times(by):
    def decorate(f):
        @functools.wraps(f)
        def inside(*args):
            return by * f(*args)
        return inside
    return decorate

GLOBAL = {value}

def pick(x):
    w = np.zeros(2)
    w[np.array(GLOBAL, int)] = 1.0
    return w

class Base(fs.ClientSelector):
    HELD = {held}
    def read(self):
        return {read}
    def select(self, key, state, ctx):
        return top_m(key, self.score(ctx.num_clients), ctx.available, ctx.m)
    {decorator}
    def score(self, n):
        return self.read() * jnp.arange(n, dtype=jnp.float32)

class Mine(Base):
    "No method of its own."
    {own}
"""

VALUES = {
    "a number": ("{}", "GLOBAL"),
    "a list": ("[{}]", "GLOBAL[0]"),
    "a dictionary": ("{{'sign': {}}}", "GLOBAL['sign']"),
    "a tuple of lists": ("([{}],)", "GLOBAL[0][0]"),
    "a dataclass": ("Config({})", "GLOBAL.sign"),
    "an enum": ("Sign({})", "GLOBAL.value"),
    "an object with slots": ("Slots({})", "GLOBAL.sign"),
    "a partial function": ("functools.partial(jnp.multiply, {})", "GLOBAL(1.0)"),
    "a namespace": ("types.SimpleNamespace(sign={})", "GLOBAL.sign"),
    "parsed arguments": ("argparse.Namespace(sign={})", "GLOBAL.sign"),
    "a queue": ("collections.deque([{}])", "GLOBAL[0]"),
    "a decimal number": ("decimal.Decimal({})", "float(GLOBAL)"),
    "a range": ("range(int({}), 5)", "GLOBAL.start"),
    "a path": ("pathlib.Path(str({}))", "float(str(GLOBAL))"),
    "a view of a dictionary": ("types.MappingProxyType({{'sign': {}}})", "GLOBAL['sign']"),
    "a dictionary of a library": ("collections.UserDict(sign={})", "GLOBAL['sign']"),
    "a series of pandas": ("pd.Series([{}])", "GLOBAL.iloc[0]"),
    "a column of objects": ("np.array([{}, None], object)", "GLOBAL[0]"),
    "a default that is also set": ("{{'sign': {}}}", "GLOBAL.setdefault('sign', 1.0)"),
    "a transformation of optax": ("optax.scale({})", "GLOBAL.update(1.0, optax.EmptyState())[0]"),
    "an attribute of a class": ("({},)", "self.HELD[0]"),
    "a function of a library": ("{{1.0: jnp.positive, -1.0: jnp.negative}}[{}]", "GLOBAL(1.0)"),
    "a function of Python": ("{{1.0: operator.pos, -1.0: operator.neg}}[{}]", "GLOBAL(1.0)"),
    "a class of a library": ("{{1.0: fs.signals.Loss, -1.0: fs.signals.Entropy}}[{}]", "len(GLOBAL.__name__) - 5.0"),
    "a fitted model": ("LinearRegression().fit([[0.0], [1.0]], [0.0, {}])", "GLOBAL.coef_[0]"),
    "a distribution": ("scipy.stats.norm({})", "GLOBAL.mean()"),
    "the order of a dictionary": ("dict([(1.0, None), (-1.0, None)][:: int({})])", "next(iter(GLOBAL))"),
    "an index made of a list": ("[{}]", "pick(jnp.zeros(2))"),
    "a function in an attribute of a class": ("{{1.0: operator.pos, -1.0: operator.neg}}[{}]", "type(self).HELD(1.0)"),
    "a rule of a derivative": ("{}", "jax.grad(ruled)(1.0)"),
    "a rule of a gradient": ("{}", "jax.grad(reversed_rule)(1.0)"),
    "a partial method": ("functools.partialmethod(lambda self, by: by, {})", "self.HELD()"),
}


def write_reads(sign, kind):
    if kind == "a decorator":
        return READS.format(rule=1.0, value=1.0, held=1.0, read="1.0", decorator=f"@times({sign})", own="")
    if kind == "a decorator of a library":
        decorator = f"@functools.partial(jax.vmap, in_axes=(None, None), out_axes={int(sign)})"
        return READS.format(rule=1.0, value=1.0, held=1.0, read="1.0", decorator=decorator, own="")
    if kind == "a constant of a derived class":
        return READS.format(rule=1.0, value=1.0, held=1.0, read="self.HELD", decorator="", own=f"HELD = {sign}")
    value, read = VALUES[kind]
    rule = sign if "rule" in read else 1.0
    value, held = (1.0, value.format(sign)) if "HELD" in read or "rule" in read else (value.format(sign), 1.0)
    return READS.format(rule=rule, value=value, held=1.0 if "rule" in read else held, read=read, decorator="", own="")


@pytest.mark.parametrize("kind", [*VALUES, "a decorator", "a decorator of a library", "a constant of a derived class"])
def test_whatever_a_method_reads_counts(kind):
    up, again, down = (run_cell(write_reads(sign, kind))["Mine"]() for sign in (1.0, 1.0, -1.0))
    assert describe_own(up) == describe_own(again) != ""
    assert describe_own(up) != describe_own(down)


HELD = {
    "a method of a named tuple": (
        "class C(NamedTuple):\n    r: float\n    def signed(self):\n        return {0} * self.r\nc = C(1.0)",
        "c.signed()",
    ),
    "the order of a named tuple": (
        "C = NamedTuple('C', [('a', float), ('b', float)][::int({0})])\nclass D(C):\n    pass\nc = D(1.0, -1.0)",
        "c.a",
    ),
    "an attribute of a dictionary": ("class D(dict):\n    pass\nc = D()\nc.sign = {0}", "c.sign"),
    "a method of a dictionary": ("class D(dict):\n    def sign(self):\n        return {0}\nc = D()", "c.sign()"),
    "a method of a list": ("class D(list):\n    def sign(self):\n        return {0}\nc = D()", "c.sign()"),
    "a method of a number": ("class D(float):\n    def sign(self):\n        return {0}\nc = D(2)", "c.sign()"),
    "a method of an enum": (
        "class D(enum.IntEnum):\n    A = 1\n    def sign(self):\n        return {0}\nc = D.A",
        "c.sign()",
    ),
    "an attribute that is no field": (
        "@dataclasses.dataclass\nclass C:\n    n: int = 3\n"
        "    def __post_init__(self):\n        self.sign = {0}\nc = C()",
        "c.sign",
    ),
    "a private slot": (
        "class C:\n    __slots__ = ('__s',)\n    def __init__(self):\n        self.__s = {0}\n"
        "    def sign(self):\n        return self.__s\nc = C()",
        "c.sign()",
    ),
    "an attribute of an array": ("class A(np.ndarray):\n    pass\nc = np.ones(3).view(A)\nc.sign = {0}", "c.sign"),
    "the mask of an array": ("c = np.ma.array([-1.0, 1.0], mask=[{0} > 0, {0} < 0])", "c.sum()"),
    "a bound method of a dictionary": ("c = {{'a': {0}}}.get", "c('a')"),
    "an element of a list": ("c = [{0}].__getitem__", "c(0)"),
    "the default of a dictionary": ("c = collections.defaultdict(lambda: {0})", "c['k']"),
    "a decorator that is a class": (
        "class Times:\n    def __init__(self, f, by):\n"
        "        self.by = by\n        functools.update_wrapper(self, f)\n"
        "    def __call__(self, x):\n        return self.by * self.__wrapped__(x)\n"
        "def same(x):\n    return x\nc = Times(same, {0})",
        "c(1.0)",
    ),
    "a descriptor": (
        "class Held:\n    def __init__(self, v):\n        self.v = v\n"
        "    def __get__(self, o, t):\n        return self.v\n"
        "class K:\n    r = Held({0})\nc = K()",
        "c.r",
    ),
    "an object that refuses what it has not": (
        "class C:\n    def __init__(self):\n        self.held = {{'sign': {0}}}\n"
        "    def __getattr__(self, name):\n        return self.__dict__['held'][name]\nc = C()",
        "c.sign",
    ),
}


@pytest.mark.parametrize("kind", HELD)
def test_code_and_attributes_of_what_a_function_holds_count(kind):
    head = "import collections, dataclasses, enum, functools\nfrom typing import NamedTuple\nimport numpy as np\n"
    text, read = HELD[kind]
    up, again, down = (
        run_cell(f"{head}{text.format(sign)}\ndef f():\n    return {read}\n")["f"] for sign in (1.0, 1.0, -1.0)
    )
    assert describe(up) == describe(again)
    assert describe(up) != describe(down)
    assert (up(), down()) == (1.0, -1.0), "by the case itself"
    if kind != "the default of a dictionary":
        assert describe(up) == describe(again), "to read it changes nothing"


NODES = """
import dataclasses, jax, flax
from typing import Any, NamedTuple

def sign():
    return {sign}

@jax.tree_util.register_pytree_node_class
class Registered:
    def read(self):
        return sign()
    def tree_flatten(self):
        return (), None
    @classmethod
    def tree_unflatten(cls, _, children):
        return cls()

class Named(NamedTuple):
    a: Any = 1.0
    def read(self):
        return sign()

@flax.struct.dataclass
class Struct:
    f: Any = flax.struct.field(pytree_node=False)

made = [Registered(), Named(), Struct(sign)]
"""


@pytest.mark.parametrize("kind", range(3))
def test_code_of_nodes_of_any_kind_counts(kind):
    up, again, down = (run_cell(NODES.format(sign=sign))["made"][kind] for sign in (1.0, 1.0, -1.0))
    assert describe_own(up) == describe_own(again) != ""
    assert describe_own(up) != describe_own(down)


INNER = """
import jax
import jax.numpy as jnp
import fedjax_sel as fs
from fedjax_sel.client_selection import top_m

SIGN = 1.0

@jax.jit
def by_jit(x):
    return SIGN * x

def body(c, x):
    return c, SIGN * x

def by_scan(x):
    return jax.lax.scan(body, 0.0, x)[1]

class Mine(fs.ClientSelector):
    def select(self, key, state, ctx):
        return top_m(key, {}(jnp.arange(ctx.num_clients, dtype=jnp.float32)), ctx.available, ctx.m)
"""


@pytest.mark.parametrize("way", ["by_jit", "by_scan"])
def test_what_jax_has_traced_of_ones_own_functions_is_not_used_after_a_change(federation, way):
    names = run_cell(INNER.format(way))
    assert set(simulate(experiment(names["Mine"]()), federation).selections.ravel().tolist()) == {4, 5}
    names["SIGN"] = -1.0
    assert set(simulate(experiment(names["Mine"]()), federation).selections.ravel().tolist()) == {0, 1}


class Share(fs.ClientSelector):
    """Selects by whether numbers are whole, and by their signs."""

    of: tuple = fs.static(default=())
    shift: object = fs.static(default=0.0)

    def select(self, key, state, ctx):
        down = "." in str(self.of) or str(self.shift).startswith("-")
        scores = jnp.arange(ctx.num_clients, dtype=jnp.float32) * (-1 if down else 1)
        return top_m(key, scores, ctx.available, ctx.m)


@pytest.mark.parametrize(
    ("up", "down"), [({"of": (1,)}, {"of": (1.0,)}), ({"of": ((1,), 2)}, {"of": ((1.0,), 2)}), ({}, {"shift": -0.0})]
)
def test_static_values_that_are_equal_but_of_other_types_are_other_programs(federation, up, down):
    found = [
        set(simulate(experiment(Share(**fields)), federation).selections.ravel().tolist()) for fields in (up, down)
    ]
    assert found == [{4, 5}, {0, 1}]
    with pytest.raises(ValueError, match="differ in floats alone"):
        fs.sweep([experiment(Share(**up)), experiment(Share(**down))], federation)


LAZY = """
import collections, functools
import jax.numpy as jnp
import fedjax_sel as fs
from fedjax_sel.client_selection import top_m

class Table:
    def __init__(self):
        self.memo = {}
        self.read = collections.defaultdict(lambda: 1.0)
    @functools.cached_property
    def sign(self):
        return 1.0
    def get(self, k):
        if k not in self.memo:
            self.memo[k] = 1.0
        return self.memo[k] * self.sign * self.read[k]

table = Table()

class Mine(fs.ClientSelector):
    def select(self, key, state, ctx):
        return top_m(key, table.get(3) * jnp.arange(ctx.num_clients, dtype=jnp.float32), ctx.available, ctx.m)
"""


def test_a_run_goes_on_though_its_code_has_noted_what_it_computed(federation, tmp_path):
    """As in another process, where nothing is noted yet; so does a finished one with more rounds."""
    stop = {"callbacks": [lambda history: history.rounds >= 2]}
    for rounds, more in ((4, stop), (4, {}), (6, {})):
        mine = run_cell(LAZY)["Mine"]()
        history = simulate(
            experiment(mine, rounds), federation, chunk=2, checkpoints=Checkpoints(tmp_path, pause=0), **more
        )
    assert history.rounds == 6
    assert history.about["resumed_at"] == 4


def test_threads_do_not_keep_what_each_other_knew():
    names = run_cell("""
    import fedjax_sel as fs
    SIGN = 1.0
    class Mine(fs.protocols.Strategy):
        def read(self):
            return SIGN
    """)
    read = jit()(lambda mine, x: mine.read() * x)
    entered, leave = threading.Event(), threading.Event()

    def stay():
        with read.as_of_now():
            read(names["Mine"](), 1.0)
            entered.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    entered.wait()
    with read.as_of_now():
        leave.set()
        thread.join()
    assert read(names["Mine"](), 1.0) == 1.0
    names["SIGN"] = -1.0
    assert read(names["Mine"](), 1.0) == -1.0


MODULE = "RATE = {0}\ndef score():\n    return {0}\n"
READS_OF_MODULES = {
    "an attribute": ("import helpers", "helpers.RATE"),
    "a function": ("import helpers", "helpers.score()"),
    "imported within": ("def rate():\n    import helpers\n    return helpers.RATE", "rate()"),
    "imported by another name": ("def rate():\n    import helpers as other\n    return other.score()", "rate()"),
    "imported from it": ("def rate():\n    from helpers import RATE as r\n    return r", "rate()"),
    "called otherwise": ("import helpers\ndef rate():\n    h = helpers\n    return h.RATE", "rate()"),
    "given by default": ("import helpers\ndef rate(h=helpers):\n    return h.RATE", "rate()"),
    "given by name": ("import helpers\ndef rate(a=2, *, h=helpers):\n    return h.RATE", "rate()"),
    "of a package": ("def rate():\n    import package.helpers as h\n    return h.RATE", "rate()"),
    "next to it": ("def rate():\n    from . import helpers\n    return helpers.RATE", "rate()"),
    "from next to it": ("def rate():\n    from .helpers import score\n    return score()", "rate()"),
}


@pytest.mark.parametrize("kind", READS_OF_MODULES)
def test_what_a_function_reads_of_ones_own_module_counts(kind, tmp_path, monkeypatch):
    head, read = READS_OF_MODULES[kind]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    inside = "package" in head or "." in head.partition("import")[0] or "from ." in head
    place, name = (tmp_path / "package", "package.helpers") if inside else (tmp_path, "helpers")
    place.mkdir(exist_ok=True)
    (place / "helpers.py").write_text(MODULE.format(1.0))
    helpers = importlib.import_module(name)
    names = run_cell(
        f"{head}\nimport math\ndef f(x):\n    return x * {read} + math.pi\n",
        {"__name__": "notebook", "__package__": "package" if inside else None},
    )
    try:
        before = describe(names["f"])
        assert before == describe(names["f"])
        (place / "helpers.py").write_text(MODULE.format(-1.0))
        importlib.reload(helpers)
        assert describe(names["f"]) != before
    finally:
        for one in ("helpers", "package", "package.helpers"):
            sys.modules.pop(one, None)


def test_what_is_bound_to_a_process_has_a_name_alone():
    head = "import io, itertools, os, queue, random, sys, threading\nfrom os import environ\n"
    made = "(threading.Lock(), sys.stdout, queue.Queue(), itertools.count(), random.Random(), environ)"
    names = run_cell(f"{head}held = {made}\ndef f():\n    return held\n")
    before = describe(names["f"])
    _, out, waiting, count, drawn, environ = names["held"]
    waiting.put(1), next(count), drawn.random(), os.environ.__setitem__("FEDJAX_SEL_TEST", "1")
    assert environ is os.environ
    del os.environ["FEDJAX_SEL_TEST"]
    names["held"] = (threading.Lock(), out, waiting, count, drawn, environ)
    assert describe(names["f"]) == before


def test_objects_of_libraries_that_change_when_they_are_used_have_a_name_alone():
    from matplotlib.colors import Normalize
    from scipy.spatial import KDTree

    scale, tree, doubled = Normalize(), KDTree(np.eye(3)), np.vectorize(lambda x: 2 * x, otypes=[float])
    names = run_cell("held = None\ndef f():\n    return held\n")
    names["held"] = (scale, tree, doubled)
    before = describe(names["f"])
    scale(np.arange(3.0)), doubled(np.arange(3.0))
    assert describe(names["f"]) == before
    assert before.count("KDTree") == 1


def test_objects_that_refer_to_each_other_and_large_tables_have_a_description():
    names = run_cell(
        """
        import numpy as np
        class Node:
            pass
        nodes = np.array([Node(), Node()], object)
        for node in nodes:
            node.all = nodes
        table = np.array(["a word"] * 100_000, object)
        table_of = {}
        class Key:
            def listen(self):
                return table_of
        table_of[Key()] = 1
        def f():
            return nodes, table, table_of
        """
    )
    assert len(describe(names["f"])) < 10_000
    before = describe(names["f"])
    names["table"][-1] = "another"
    assert describe(names["f"]) != before


def test_a_memo_and_what_a_module_notes_compile_nothing_again():
    shared = types.ModuleType("shared_notes")
    shared.log, shared.count = [], {}
    names = run_cell(
        """
        memo, seen, notes = {}, set(), []
        def f(x):
            if x not in memo:
                memo[x] = x + 1
            if x not in seen:
                seen.add(x)
            shared.log.append(x)
            shared.count[x] = x
            return memo[x]
        def g(x):
            notes.append(x)
            return len(notes), len(shared.log)
        """,
        {"__name__": "notebook", "shared": shared},
    )
    sys.modules["shared_notes"] = shared
    try:
        before, of_g = describe(names["f"]), describe(names["g"])
        assert names["f"](3) == 4
        assert shared.log == [3]
        assert describe(names["f"]) == before
        assert describe(names["g"]) != of_g, "this reads the log"
        of_g = describe(names["g"])
        names["g"](3)
        assert describe(names["g"]) != of_g, "and what it noted itself"
    finally:
        del sys.modules["shared_notes"]


def test_a_container_that_is_changed_in_a_static_field_is_another_program(federation):
    names = run_cell(
        """
        import jax.numpy as jnp
        import fedjax_sel as fs
        from fedjax_sel.client_selection import top_m
        class Mine(fs.ClientSelector):
            options: dict = fs.static()
            def select(self, key, state, ctx):
                return top_m(key, self.options["sign"] * jnp.arange(6.0), ctx.available, ctx.m)
        """
    )
    options, make = {"sign": 1.0}, names["Mine"]
    assert set(simulate(experiment(make(options)), federation).selections.ravel().tolist()) == {4, 5}
    options["sign"] = -1.0
    for same in (options, {"sign": -1.0}):
        assert set(simulate(experiment(make(same)), federation).selections.ravel().tolist()) == {0, 1}
    assert set(simulate(experiment(make({"sign": 1.0})), federation).selections.ravel().tolist()) == {4, 5}


def test_an_array_of_a_type_that_jax_converts_may_be_changed_in_place(federation):
    names = run_cell(
        CELL.replace("SIGN = 1.0", "SIGN = np.arange(6.0)").replace("return SIGN *", "return SIGN + 0 *"),
        {"np": np, "__name__": "notebook"},
    )
    assert names["SIGN"].dtype == np.float64
    assert set(simulate(experiment(names["Mine"]()), federation).selections.ravel().tolist()) == {4, 5}
    names["SIGN"] *= -1
    assert set(simulate(experiment(names["Mine"]()), federation).selections.ravel().tolist()) == {0, 1}


@pytest.mark.parametrize("made", ["np.random.default_rng(3)", "np.random.RandomState(3)"])
def test_a_generator_of_numpy_that_was_made_before_is_refused(federation, made):
    names = run_cell(
        CELL.replace("SIGN = 1.0", f"SIGN = {made}").replace("return SIGN *", "return SIGN.random(n) *"), {"np": np}
    )
    with pytest.raises(ValueError, match=r"score reads SIGN, a \w+ of np\.random that was made before.*from the key"):
        simulate(experiment(names["Mine"]()), federation)


def test_a_changed_list_or_dataclass_is_another_program(federation):
    for kind in ("a list", "a dataclass"):
        names = run_cell(write_reads(1.0, kind))
        mine = experiment(names["Mine"]())
        assert set(simulate(mine, federation, chunk=4).selections.ravel().tolist()) == {4, 5}
        names["GLOBAL"] = run_cell(write_reads(-1.0, kind))["GLOBAL"]
        assert set(simulate(mine, federation, chunk=4).selections.ravel().tolist()) == {0, 1}


def test_what_is_noted_in_ways_that_are_not_seen_compiles_nothing_again_within_a_run(federation):
    names = run_cell(
        """
        import jax
        import numpy as np
        import jax.numpy as jnp
        import fedjax_sel as fs
        LOG = np.zeros(4)
        def note(round):
            np.put(LOG, round, 1)
        class Noting(fs.ClientSelector):
            def select(self, key, state, ctx):
                jax.debug.callback(note, ctx.round)
                return fs.client_selection.top_m(key, jnp.zeros(ctx.num_clients), ctx.available, ctx.m)
        """
    )
    before = run_chunk.programs
    simulate(experiment(names["Noting"]()), federation, chunk=1)
    jax.effects_barrier()
    np.testing.assert_array_equal(names["LOG"], 1)
    assert run_chunk.programs == before + 1


def test_what_is_noted_in_a_closure_compiles_nothing_again(federation):
    heard = []

    class Noting(fs.ClientSelector):
        def select(self, key, state, ctx):
            jax.debug.callback(heard.append, ctx.round)
            return fs.client_selection.top_m(key, jnp.zeros(ctx.num_clients), ctx.available, ctx.m)

    before = run_chunk.programs
    simulate(experiment(Noting()), federation, chunk=1)
    jax.effects_barrier()
    assert len(heard) == 4
    assert run_chunk.programs == before + 1


def test_a_method_that_is_set_on_a_class_of_the_library_is_followed(monkeypatch):
    assert describe_own(fs.client_selection.Uniform()) == ""
    monkeypatch.setattr(fs.client_selection.Uniform, "select", lambda self, key, state, ctx: None)
    assert describe_own(fs.client_selection.Uniform()) != ""


def test_strategies_of_the_library_hold_no_user_code_and_recursion_ends():
    parts = [fs.client_selection.load(name)() for name in fs.client_selection.available()]
    assert describe_own(parts) == ""
    names = run_cell("def f(n):\n    return g(n)\ndef g(n):\n    return f(n - 1) if n else 0\n")
    assert describe(names["f"]) == describe(names["f"])


def test_a_description_is_the_same_in_every_process(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np
            from fedjax_sel.code import describe_lastingly
            import fedjax_sel as fs
            TABLE = np.arange(3)
            COST = {name: 1.0 for name in {"a", "b", "c", "d"}}
            def rule(x, names=frozenset({"a", "b", "c", "d"})):
                return TABLE[x] in {"p", "q", "r", "s"} or (lambda y: y in names)(x)
            class Mine(fs.ClientSelector):
                limit = 3
                def select(self, key, state, ctx):
                    return rule(self.limit) + COST["a"]
            print(describe_lastingly(Mine()))
            """
        )
    )
    said = {
        subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert "TABLE" in said.pop()


ON = {0, 1}


def is_on(round, n):
    return jnp.array([i in ON for i in range(n)])


def test_what_code_asks_a_container_for_is_followed(monkeypatch):
    before = describe(is_on)
    monkeypatch.setitem(globals(), "ON", {2, 3})
    assert describe(is_on) != before


def test_the_names_of_arguments_are_part_of_the_code():
    """Signals are given by name."""

    def of(text):
        held = {}
        exec(f"def score({text}, **_): return {text.rpartition(' ')[2]}", held)
        return describe(held["score"])

    assert len({of("*, loss"), of("*, entropy"), of("loss"), of("loss, /, entropy")}) == 4
    assert of("*, loss") == of("*, loss")


SHIFT = 1.0


def shifted(outputs, targets):
    return jnp.full(len(targets), SHIFT)


def test_a_metric_of_the_users_is_followed(monkeypatch):
    source = fs.load("iris")
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), source, metrics={"shifted": shifted})
    federation = fs.Federation(source, fs.partition.Iid(clients=5))
    experiment = fs.Experiment(task, cohort_size=2, rounds=1)
    assert fs.simulate(experiment, federation)["shifted"].item() == 1.0
    monkeypatch.setitem(globals(), "SHIFT", 7.0)
    assert fs.simulate(experiment, federation)["shifted"].item() == pytest.approx(7.0)
