"""Imports go downwards only."""

import ast
from pathlib import Path

import fedjax_sel

ROOT = Path(fedjax_sel.__file__).parent
LAYERS = (
    ("types", "protocols", "catalog", "parts"),
    ("models", "task", "signals", "data"),
    ("client_selection", "data_selection", "local_training", "correction", "aggregation", "devices"),
    ("engine",),
    ("config", "pretrained", "folder", "presets", "metrics", "report", "callbacks"),
    ("papers",),
    ("running", "sweeping", "cli"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(tree):
    """(imported module, whether it is for type checkers only) of a file."""
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in typing_only
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only


def test_imports_go_downwards_only():
    wrong = []
    for file in ROOT.rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        if parts[0] == "__init__":
            continue
        assert parts[0] in LEVEL, f"{file} belongs to no layer"
        for name, typing_only in imports(ast.parse(file.read_text())):
            words = name.split(".")
            if words[0] != "fedjax_sel" or len(words) < 2 or words[1] not in LEVEL or typing_only:
                continue
            if LEVEL[words[1]] > LEVEL[parts[0]]:
                wrong.append(f"{'/'.join(parts)} imports {name}")
    assert not wrong
