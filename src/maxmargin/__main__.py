"""``python -m maxmargin`` is the command ``maxmargin``."""

from maxmargin.cli.main import app

if __name__ == "__main__":
    app(prog_name="maxmargin")
