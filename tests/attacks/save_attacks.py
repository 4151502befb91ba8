"""Models that are loaded while others write to the same path: each is wholly one of those saved."""

import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, cycle, zip_longest
from pathlib import Path

from attacked_models import Attacked, answers, fitted
from children import Outcome, foreign, in_children, quietly

import maxmargin as mm

Writer = Callable[[list[Attacked], Path], None]


def _alternately(models: list[Attacked], path: Path) -> None:
    for attacked in cycle(models):
        mm.save(attacked.model, path)


def _in_threads(models: list[Attacked], path: Path) -> None:
    """Two threads of one process, each with a model of its own."""

    def save(attacked: Attacked) -> None:
        while True:
            try:
                mm.save(attacked.model, path)
            except BaseException:
                _note(path)

    threads = [threading.Thread(target=save, args=(attacked,)) for attacked in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _killed(models: list[Attacked], path: Path) -> None:
    """Again and again a process that saves is killed."""
    for attacked in cycle(models):
        process = os.fork()
        if not process:
            _alternately([attacked], path)
        time.sleep(random.uniform(0.0, 0.01))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


WRITERS: dict[str, list[Writer]] = {
    "one process saves": [_alternately],
    "two processes save": [_alternately, _alternately],
    "two threads save": [_in_threads],
    "processes that save are killed": [_killed],
}


def loads(kind: str, folder: Path, n: int, seed: int) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of `n` loads in two processes, while others save."""
    models = [fitted("classifier"), fitted("classifier, costs")]
    expected = {answers(attacked) for attacked in models}
    assert len(expected) == 2
    path = mm.save(models[0].model, folder / "shared.mm")

    def attempt(at: int) -> Iterator[Outcome]:
        try:
            mm.read_header(path)
            found = answers(models[0]._replace(model=mm.load(path)))
        except BaseException as error:
            yield foreign("load", error)
        else:
            whole = found in expected
            yield Outcome(not whole, "whole" if whole else "neither of the two")

    with _writing(WRITERS[kind], models, path):
        seeds = range(seed, seed + n)
        loaders = (in_children(attempt, seeds[start::2]) for start in (0, 1))
        yield from filter(None, chain.from_iterable(zip_longest(*loaders)))
    yield from ((seed, Outcome(True, "save fails", text)) for text in _noted(folder))


@contextmanager
def _writing(writers: list[Writer], models: list[Attacked], path: Path) -> Iterator[None]:
    """While processes of these writers run."""
    processes = []
    for writer in writers:
        process = os.fork()
        if not process:
            _work(writer, models, path)  # never returns
        processes.append(process)
    try:
        yield
    finally:
        for process in processes:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _work(writer: Writer, models: list[Attacked], path: Path) -> None:
    os.setpgid(0, 0)
    quietly()
    try:
        writer(models, path)
    except BaseException:
        _note(path)
    os._exit(1)


def _note(path: Path) -> None:
    """Keep the error of a writer for the report."""
    path.with_name(f"error-{os.getpid()}-{threading.get_ident()}").write_text(
        traceback.format_exc()
    )


def _noted(folder: Path) -> list[str]:
    return [file.read_text()[-300:].replace("\n", " ") for file in folder.glob("error-*")]
