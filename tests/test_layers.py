"""Imports go downwards only, and never in a circle."""

import ast
import sys
from pathlib import Path

import pytest

import fedjax_sel

ROOT = Path(fedjax_sel.__file__).parent
STRATEGIES = ("client_selection", "data_selection", "local_training", "correction", "aggregation")
LAYERS = (
    ("pytree", "compiled", "arrays", "catalog", "code", "bytecode", "mistakes", "cores", "interrupts"),
    ("types", "protocols", "collectives"),
    ("models", "task", "signals", "data", "devices", "metrics", "kernels"),
    STRATEGIES,
    ("engine",),
    ("runs.files", "runs.formats", "runs.pretrained"),
    ("config", "callbacks"),
    ("report",),
    ("runs",),
    ("papers",),
    ("leaderboard",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
"""Of a package, or of a module that is in another layer than its package."""

OF_TYPES = {("types", "devices"), ("protocols", "data"), ("protocols", "task")}
"""What a layer knows of one above it by name only: the annotations of the contract."""


def layer_of(name):
    """The entry of `LEVEL` that a dotted name below `fedjax_sel` belongs to."""
    parts = name.split(".")
    return next((one for k in (2, 1) if (one := ".".join(parts[:k])) in LEVEL), None)


def is_for_types(block):
    """Whether a statement is for type checkers only."""
    return isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)


def imported(tree, modules, name=""):
    """(imported module, whether it is for type checkers only) of a file, of all of `modules` that it names."""
    typing_only = {id(node) for block in ast.walk(tree) if is_for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module, id(node) in typing_only
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only


def graph_of(root, package):
    """(module, imported module) to whether the import is for type checkers only, over the files of a package."""
    files = {}
    for file in root.rglob("*.py"):
        parts = file.relative_to(root).with_suffix("").parts
        files[".".join([package, *(p for p in parts if p != "__init__")])] = file
    edges = {}
    for name, file in files.items():
        for other, typing_only in imported(ast.parse(file.read_text()), files):
            if other in files and other != name:
                edges[name, other] = edges.get((name, other), True) and typing_only
    return edges


def circles(edges):
    """The strongly connected components of more than one module (Tarjan, 1972)."""
    after = {}
    for one, other in edges:
        after.setdefault(one, []).append(other)
        after.setdefault(other, [])
    number, low, stack, found = {}, {}, [], []

    def visit(one):
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in after[one]:
            if other not in number:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], number[other])
        if low[one] == number[one]:
            k = stack.index(one)
            if len(stack) - k > 1:
                found.append(sorted(stack[k:]))
            del stack[k:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10_000))
    try:
        for one in after:
            if one not in number:
                visit(one)
    finally:
        sys.setrecursionlimit(limit)
    return found


@pytest.fixture(scope="module")
def graph():
    return graph_of(ROOT, "fedjax_sel")


def test_every_module_is_in_a_layer():
    rooms = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "__pycache__"}
    modules = {p.stem for p in ROOT.glob("*.py") if p.stem != "__init__"}
    assert (rooms | modules) - {"presets", "pretrained"} == {name for name in LEVEL if "." not in name}


def test_only_what_has_no_room_is_a_module_at_the_root():
    assert {p.stem for p in ROOT.glob("*.py")} <= {
        "__init__",
        "pytree",
        "compiled",
        "arrays",
        "types",
        "protocols",
        "collectives",
        "catalog",
        "code",
        "bytecode",
        "mistakes",
        "interrupts",
        "cores",
        "task",
    }


def test_imports_go_downwards_only(graph):
    wrong = []
    for (name, other), typing_only in graph.items():
        if name == "fedjax_sel" or other == "fedjax_sel":
            continue
        mine, theirs = (layer_of(one.removeprefix("fedjax_sel.")) for one in (name, other))
        if LEVEL[theirs] > LEVEL[mine] and not (typing_only and (mine, theirs) in OF_TYPES):
            wrong.append(f"{name} imports {other}")
    assert not wrong


def test_imports_never_go_in_a_circle_types_only_ones_included(graph):
    assert circles(graph) == []


SLOW = {"sklearn", "scipy.stats", "scipy.signal", "scipy.optimize", "scipy.spatial", "tensorflow_datasets", "datasets"}
"""What takes long to import, and `list` and `show` do not need; SciPy itself loads its modules where they are used."""


def list_at_once(tree):
    """The modules that a file imports when it is imported itself."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_what_takes_long_to_import_is_imported_where_it_is_used():
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in ROOT.rglob("*.py")
        for name in list_at_once(ast.parse(file.read_text()))
        if any(f"{name}.".startswith(f"{slow}.") for slow in SLOW)
    ]
    assert not wrong


def test_a_circle_is_found_whatever_its_length_and_kind(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("from p.inner import b\n")
    (tmp_path / "inner" / "b.py").write_text("import p.c\n")
    (tmp_path / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import X\n")
    (tmp_path / "d.py").write_text("from p import a\n")
    edges = graph_of(tmp_path, "p")
    assert edges["p.c", "p.a"]
    assert not edges["p.inner.b", "p.c"]
    assert circles(edges) == [["p.a", "p.c", "p.inner.b"]]
    assert circles({edge: typing for edge, typing in edges.items() if not typing}) == []
