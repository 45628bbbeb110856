"""The documentation builds without a warning, names everything, and its code runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedjax_sel import config, types

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = {
    str(page.relative_to(ROOT)): blocks
    for page in PAGES
    if page.name != "CONTRIBUTING.md" and (blocks := BLOCK.findall(page.read_text()))
}
KINDS = ("client_selection", "data_selection", "local_training", "correction", "aggregation")


def test_the_site_builds_without_a_warning(tmp_path):
    """With Sphinx's plain theme; half of a minute and a half goes into the navigation that Furo draws on each page."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "html_theme=basic", "docs"]
    command += [str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference/strategies/client_selection/entropy.html").read_text()
    assert "epsilon" in page
    assert "A client pays one forward pass" in page
    assert "<math" in (tmp_path / "reference/strategies/client_selection/fed_cbs.html").read_text()
    assert not re.search(r'(src|href)="https?://[^"]*\.(js|css)"', page), "a page fetches something"


@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_is_listed(kind):
    page = (ROOT / "docs/how-to/strategies.md").read_text()
    assert [name for name in config.KINDS[kind].available() if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", CODE)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, block in enumerate(CODE[page], 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_pages_to_learn_from_are_one_screen():
    lines = {page.name: page.read_text().count("\n") for page in (ROOT / "docs/learn").glob("*.md")}
    assert {name: count for name, count in lines.items() if count > 80} == {}


def test_the_page_of_terms_has_the_axes_of_the_legend():
    page = (ROOT / "docs" / "understand" / "terms.md").read_text(encoding="utf-8")
    legend = set(re.findall(r"`(\w)`\s+(\w+(?: \w+)*)", types.__doc__ or ""))
    assert set(re.findall(r"`(\w)` \| ([\w ]+?) \|", page)) == legend
    assert len(legend) == 12


@pytest.mark.parametrize(
    ("kind", "said"), [("client_selection", r"(\d+) selectors"), ("data_selection", r"Data selection\*\*: (\d+)")]
)
def test_the_readme_counts_strategies_right(kind, said):
    found = re.search(said, (ROOT / "README.md").read_text())
    assert found
    assert int(found[1]) == len(config.KINDS[kind].available())
