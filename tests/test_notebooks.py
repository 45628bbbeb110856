"""The notebooks run from top to bottom, and what they show is what they print today, but for numbers."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def list_words(notebook):
    """The words that cells return, sorted, without numbers and the order of rows, which differ between processors."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output["data"]["text/plain"] for output in outputs if output["output_type"] == "execute_result"]
    return [sorted(word for word in re.findall(r"[^\W\d]\w*", text) if word not in ("nan", "e")) for text in texts]


def list_shapes(notebook):
    """How many pictures and intervals each cell shows."""
    outputs = [[output.get("data", {}) for output in cell.get("outputs", [])] for cell in notebook.cells]
    return [
        (sum("image/png" in one for one in cell), sum(one.get("text/plain", "").count("[") for one in cell))
        for cell in outputs
    ]


# The kernel runs in another process over sockets on this machine, which ipykernel and zmq close when they please.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND")  # a notebook's figures are in its cells
    notebook = nbformat.read(path, as_version=4)
    shown, shapes = list_words(notebook), list_shapes(notebook)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    pictures = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert pictures, "it draws something"
    assert list_words(notebook) == shown
    assert list_shapes(notebook) == shapes
