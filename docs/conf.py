"""How the documentation is built: ``make docs``, or ``sphinx-build -W docs build/docs``."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

import maxmargin

project = "maxmargin"
author = "The maxmargin developers"
copyright = author
version = release = maxmargin.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

# Pages are Markdown as code hosts show it too: formulas in dollars or blocks, links to headings.
myst_enable_extensions = ["deflist", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4

# Docstrings are NumPy's. Types in signatures only repeat what these say in words.
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": "str, tuple"}
autodoc_member_order = "groupwise"
autosummary_imported_members = True
numpydoc_show_class_members = False
default_role = "py:obj"
smartquotes = False

html_theme = "furo"
html_title = f"maxmargin {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
templates_path = ["_templates"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def skip_member(
    app: Sphinx, kind: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn and the standard library add to a class: it is theirs to tell."""
    if re.fullmatch(r"set_\w+_request", name):
        return True
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    home = getattr(function, "__module__", None)
    return True if home and not home.startswith("maxmargin") else None


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """Make public names in running text, such as ``Ranker(C=1.0)``, lead to the reference."""
    linked = {
        id(literal)
        for kind in (nodes.reference, nodes.title, pending_xref)
        for node in doctree.findall(kind)
        for literal in node.findall(nodes.literal)
    }
    for literal in list(doctree.findall(nodes.literal)):
        target = _full_name(literal.astext())
        if target and id(literal) not in linked:
            link = pending_xref("", refdomain="py", reftype="obj", reftarget=target)
            link["refdoc"] = app.env.docname
            literal.replace_self(link)
            link += literal


def _full_name(text: str) -> str | None:
    """What `text` calls, if that is public; a bare word must look like a name."""
    found = re.fullmatch(r"(mm\.)?(data\.)?(\w+)(?:\(.*\))?", text)
    if found is None or not (found[1] or re.search("^[A-Z]|[a-z]_", found[3])):
        return None
    modules = (maxmargin.data,) if found[2] else (maxmargin, maxmargin.data)
    homes = [module.__name__ for module in modules if found[3] in module.__all__]
    return f"{homes[0]}.{found[3]}" if homes else None


def visit_formula(writer: Any, node: Any) -> None:
    """Write a formula as MathML: pages need no network and no script to show it."""
    writer.body.append(_as_mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_formula_block(writer: Any, node: Any) -> None:
    """Write a formula that stands alone."""
    writer.body.append(f'<div class="formula">{_as_mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _as_mathml(formula: str, as_block: bool) -> str:
    # docutils reads \frac12 as twelve over what follows.
    formula = re.sub(r"(\\[td]?frac)(\d)(\d)", r"\1{\2}{\3}", formula)
    return str(tex2mathml(formula, as_block=as_block))


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("autodoc-skip-member", skip_member)
    app.connect("doctree-read", link_names)
    app.add_html_math_renderer("mathml", (visit_formula, None), (visit_formula_block, None))
