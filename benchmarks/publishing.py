"""Results as they are published with the documentation: without details, with their plots.

What is measured in benchmarks/results stays on the machine. What the page needs of it goes to
docs/_static/benchmarks, so that anybody can write the page again.
"""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.claims import about, claims
from benchmarks.common import say
from benchmarks.recording import MalformedError, published_file, read_result, result_file
from benchmarks.reporting import draw, panel_from_json, write_json

LEFT_OUT = ("arguments", "code", "details", "machine", "panels")
"""What of a result stays where it was measured."""


def publish(redraw: bool = False) -> None:
    """Publish all results there are; of claims that have none, what is published stays.

    Parameters
    ----------
    redraw : bool
        Whether to draw the plots of results anew that are published already.
    """
    before = published()
    for claim in claims():
        old, new = before.get(claim), _fit_for_the_page(claim)
        if new is not None and (redraw or old is None or old["date"] != new["date"]):
            old = _without_details(new)
            panels = {title: panel_from_json(panel) for title, panel in new["panels"].items()}
            if panels:
                draw(panels, published_file(claim).with_suffix(".svg"))
        if old is not None:
            # The benchmark's own words may have changed since; its numbers have not.
            write_json(published_file(claim), old | {"about": about(claim)})


def published() -> dict[str, dict[str, Any]]:
    """What is published of each claim, in the order of the page."""
    files = {claim: published_file(claim) for claim in claims()}
    return {
        claim: json.loads(path.read_text(encoding="utf-8"))
        for claim, path in files.items()
        if path.exists()
    }


def _fit_for_the_page(claim: str) -> dict[str, Any] | None:
    """The claim's result, if it has one that is whole."""
    path = result_file(claim, quick=False)
    if not path.exists():
        return None
    try:
        result = read_result(path)
    except MalformedError as error:
        say(f"{error}; the page keeps what it had.")
        return None
    if result["arguments"]:
        say(f"{path.name} is of `{result['command']}`, not of all; the page keeps what it had.")
        return None
    return result


def _without_details(result: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in result.items() if key not in LEFT_OUT}
    return kept | {"plot": list(result["panels"])}
