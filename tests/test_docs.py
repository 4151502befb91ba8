"""The documentation: examples run, pages are reached, links lead somewhere, the site builds."""

import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import maxmargin

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "maxmargin"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ONE_SESSION = "The blocks of this page run one after the other."
"""A page that says so is one program; otherwise each block stands alone."""


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def programs_of(page):
    blocks = blocks_of(page)
    if blocks and ONE_SESSION in page.read_text(encoding="utf-8"):
        return ["\n".join(blocks)]
    return blocks


PROGRAMS = [
    pytest.param(program, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, program in enumerate(programs_of(page))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_example_runs(program, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    exec(compile(program, "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()


def toctrees(page):
    """Captions and entries of the page's tables of contents."""
    text = page.read_text(encoding="utf-8")
    for body in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        caption = re.search(r"^:caption: (.*)$", body, re.MULTILINE)
        entries = re.findall(r"^(?:.* <)?([\w/-]+)>?$", body, re.MULTILINE)
        yield caption and caption[1], entries


def test_every_page_is_in_one_table_of_contents():
    listed = [
        (page.parent / entry).relative_to(DOCS).as_posix()
        for page in DOCS.rglob("*.md")
        for _, entries in toctrees(page)
        for entry in entries
    ]
    written = {
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in [*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")]
        if not {"_templates", "generated"} & set(page.relative_to(DOCS).parts)
    }
    assert sorted(listed) == sorted(written - {"index"})


def test_every_task_has_an_example():
    entries = dict(toctrees(DOCS / "index.md"))["Tasks"]
    assert [entry for entry in entries if not blocks_of(DOCS / f"{entry}.md")] == []


def without_code(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", "", text)


def anchors_of(page):
    """Headings as code hosts and Sphinx make them into links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = [re.sub(r"[^\w -]", "", heading.strip()).lower() for heading in headings]
    return {heading.replace(" ", "-") for heading in words}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of
)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8")))
    for link in links:
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def included(page):
    """What the page includes of other files: paths and options."""
    text = page.read_text(encoding="utf-8")
    for path, body in re.findall(
        r"^```\{literalinclude\} (\S+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    ):
        yield page.parent / path, dict(re.findall(r'^:([\w-]+): "?(.*?)"?$', body, re.MULTILINE))


@pytest.mark.parametrize("page", [page for page in PAGES if any(included(page))], ids=name_of)
def test_what_is_included_is_there(page):
    for path, options in included(page):
        text = path.read_text(encoding="utf-8")
        for option in ("start-after", "end-before", "start-at"):
            assert options.get(option, "") in text, f"{path.name}: {options}"
        if "pyobject" in options:
            assert re.search(rf"^(?:class|def) {options['pyobject']}\b", text, re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_files_and_modules_that_pages_name_exist(page):
    text = page.read_text(encoding="utf-8")
    folders = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())
    paths = re.findall(
        rf"`((?:tests|examples|benchmarks|docs|src|{folders})/[\w/.]+)(?:::(\w+))?`", text
    )
    for path, test in paths:
        found = [root / path for root in (ROOT, PACKAGE) if (root / path).exists()]
        assert found, path
        assert not test or f"def {test}(" in found[0].read_text(encoding="utf-8"), test
    for name in re.findall(r"`(maxmargin(?:\.\w+)+)", text):
        assert pydoc.locate(name), name


def test_the_architecture_shows_the_folders_that_are_there():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    house = text.split("    src/maxmargin/\n")[1].split("\n\n")[0]
    rooms = re.findall(r"^ {6}(\w+)/", house, re.MULTILINE)
    structures = re.findall(r"(\w+)/(?=\s)", house.split("structures/")[1].split("\n    tests/")[0])
    for shown, folder in ((rooms, PACKAGE), (structures, PACKAGE / "structures")):
        there = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
        assert sorted(shown) == sorted(there)
    for name in re.findall(r"^ {4}(\w+)/", house, re.MULTILINE):
        assert (ROOT / name).is_dir()


def names_in_reference(module):
    listed = []
    for page in (DOCS / "api").glob("*.rst"):
        parts = re.split(
            r"^\.\. currentmodule:: (\S+)$", page.read_text(encoding="utf-8"), flags=re.M
        )
        for current, body in zip(parts[1::2], parts[2::2], strict=True):
            if current == module:
                listed += re.findall(r"^(?:   |\.\. py:data:: )(\w+)$", body, re.MULTILINE)
    return listed


def test_reference_names_only_what_exists():
    for page in (DOCS / "api").glob("*.rst"):
        text = page.read_text(encoding="utf-8")
        for module in re.findall(r"^\.\. currentmodule:: (\S+)$", text, re.MULTILINE):
            for name in names_in_reference(module):
                assert pydoc.locate(f"{module}.{name}") is not None, f"{page.name}: {name}"


@pytest.mark.parametrize("public", [maxmargin, maxmargin.data], ids=lambda module: module.__name__)
def test_reference_has_every_public_name_once(public):
    expected = set(public.__all__) - {"__version__", "data", "structures"}
    listed = names_in_reference(public.__name__)
    assert expected - set(listed) == set(), "these are missing in docs/api/*.rst"
    assert sorted(listed) == sorted(expected)


@pytest.mark.slow
def test_site_builds_without_warnings_and_needs_no_network(tmp_path):
    for package in ("sphinx", "myst_parser", "numpydoc", "furo", "sphinx_copybutton"):
        pytest.importorskip(package)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("examples", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("generated"))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", "site"]
    build = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    fetched = re.compile(r'<(?:script|img|iframe)[^>]* src="https?:|<link[^>]* href="https?:')
    assert [page.name for page in pages if fetched.search(page.read_text(encoding="utf-8"))] == []
