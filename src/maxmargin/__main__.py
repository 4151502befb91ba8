"""``python -m maxmargin`` is the command ``maxmargin``."""

from maxmargin.cli.main import app

app(prog_name="maxmargin")
