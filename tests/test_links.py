"""Links of pages and notebooks lead somewhere, files and headings both; nothing is fetched."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
MADE = ("reports", "strategies")
"""Folders of pages that are made from code and results when the site is built."""
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if not set(MADE) & set(page.parts)]
PAGES += sorted((ROOT / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)|^\[[^]]+\]: (\S+)$", re.MULTILINE)
COLAB = "https://colab.research.google.com/github/fedjax-sel/fedjax_sel/blob/main/notebooks/"


def read(page: Path) -> str:
    """Returns the Markdown of a page, or of a notebook's cells, without code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def list_anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ +(.*?) *$", read(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", head)).strip().lower().replace(" ", "-") for head in heads}


def is_of_strategy(page: Path) -> bool:
    """Whether a page is that of a strategy, which exists once the site is built."""
    folder, kind = page.parent.parent.name, page.parent.name
    return folder == "strategies" and page.stem in import_module(f"fedjax_sel.{kind}").available()


def list_broken(page: Path) -> Iterator[str]:
    """Yields the links of a page that lead nowhere."""
    for link in map("".join, LINK.findall(re.sub(r"`[^`\n]*`", "", read(page)))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / unquote(target) if target else page
        if not (file.exists() or is_of_strategy(file)) or (
            anchor and file.suffix == ".md" and file.exists() and anchor not in list_anchors(file)
        ):
            yield link


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    assert list(list_broken(page)) == []


@pytest.mark.quick
def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# A head, of `code`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-head-of-code) [c](gone.md) [d](other.md#gone) [e](https://x.y)\n\n"
        "[f]: gone.md#at-all\n\n[g](strategies/client_selection/oort.md) [h](strategies/client_selection/gone.md)\n"
    )
    gone = ["gone.md", "other.md#gone", "gone.md#at-all", "strategies/client_selection/gone.md"]
    assert sorted(list_broken(page)) == sorted(gone)


@pytest.mark.quick
@pytest.mark.parametrize("page", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda page: page.stem)
def test_a_notebook_opens_in_colab_by_its_badge_and_installs_first(page):
    cells = json.loads(page.read_text())["cells"]
    assert f"({COLAB}{page.name})" in "".join(cells[0]["source"])
    assert cells[0]["cell_type"] == "markdown"
    install = next(cell for cell in cells if cell["cell_type"] == "code")
    assert "%pip install" in "".join(install["source"])
    assert 'find_spec("fedjax_sel") is None' in "".join(install["source"])  # harmless where it is installed
    drawn = [output for cell in cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
    assert drawn, "its figures are kept"


def test_committed_results_name_no_folder_of_the_machine_that_made_them():
    reports = [path for path in (ROOT / "benchmarks").rglob("*") if path.suffix in {".md", ".json", ".html", ".yaml"}]
    own = re.compile(r"(?<![\w.~}])/(?:work|home|root|tmp|mnt|data|Users)/\w")
    assert len(reports) > 100
    assert not [str(path) for path in reports if own.search(path.read_text(encoding="utf-8"))]
