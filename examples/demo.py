"""The tour of the library: what `make demo` and `maxmargin demo` show."""

from maxmargin.cli.tour import tour

if __name__ == "__main__":
    tour("maxmargin-demo")
