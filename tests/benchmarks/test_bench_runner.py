"""The runner: what is done is kept, what fails is told, what is stopped stops."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from fake_claims import GOOD, WHOLE, bench, command, make_folder


def result(folder, claim, where="results"):
    return json.loads((folder / "benchmarks" / where / f"{claim}.json").read_text())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder in which everything has been measured once, and what was said."""
    folder = make_folder(
        tmp_path_factory.mktemp("measured"),
        whole=WHOLE,
        crash="print('halfway')\nraise ValueError('no luck')\n",
        plotless="leave(Report(rows))\n",
        pictureless="write_json(path, recording.end(Report(rows, panels=panels), __doc__))\n",
        good=GOOD,
    )
    return folder, bench(folder)


def test_a_failing_claim_does_not_stop_the_others(measured):
    folder, done = measured
    assert done.returncode == 1
    assert "[5 of 5] good 1 of 2 bars met" in done.stderr
    assert "5 claims measured: 2 bars met, 4 missed" in done.stdout
    assert re.search(r"^good: size +1 MB +2 MB +- +no$", done.stdout, re.MULTILINE)
    assert result(folder, "good")["rows"][0]["what"] == "speed"


@pytest.mark.parametrize(
    ("claim", "failure"),
    [
        ("crash", "failed with exit code 1: ValueError: no luck"),
        ("plotless", "failed: plotless.json has no plot"),
        ("pictureless", "failed: pictureless.svg was not written"),
    ],
)
def test_a_failure_is_told_and_is_a_missed_bar_on_the_page(measured, claim, failure):
    folder, done = measured
    assert f"{claim} {failure}. The end of what it said:" in done.stderr
    row = result(folder, claim)["rows"][0]
    assert (row["reached"], row["met"]) == (failure, False)
    assert f"| {failure} |" in (folder / "docs/benchmarks/fakes.md").read_text()


def test_what_a_failed_claim_said_is_shown(measured):
    assert "halfway\nTraceback" in measured[1].stderr


def test_a_result_tells_how_it_was_measured(measured):
    folder, _ = measured
    found = result(folder, "whole")
    assert found["command"] == "python -m benchmarks.whole"
    assert found["arguments"] == []
    assert found["commit"] is None  # not in a repository
    assert len(found["code"]) == 64
    assert found["seconds"] >= 0
    assert len(found["load"]) == 2
    assert found["others"] >= 0
    assert found["versions"]["numpy"]
    assert "python-crfsuite" not in found["versions"]  # it does not use it
    assert (folder / "benchmarks/results/whole.svg").read_text().rstrip().endswith("</svg>")


def test_published_without_details(measured):
    folder, _ = measured
    published = json.loads((folder / "docs/_static/benchmarks/whole.json").read_text())
    assert "details" not in published
    assert published["plot"] == ["a curve"]
    assert (folder / "docs/_static/benchmarks/whole.svg").exists()


def test_what_is_up_to_date_is_not_measured_again(measured):
    folder, _ = measured
    before = {claim: result(folder, claim) for claim in ("good", "whole")}
    done = bench(folder, "--only", "whole", "good", "crash")
    assert "good: up to date (" in done.stderr
    assert "whole: up to date (" in done.stderr
    assert "[1 of 1] crash failed" in done.stderr  # a failure is tried again
    assert done.returncode == 1
    assert {claim: result(folder, claim) for claim in before} == before


def test_list_tells_what_is_up_to_date(measured):
    folder, _ = measured
    before = (folder / "benchmarks/results/good.json").read_text()
    done = bench(folder, "--list")
    states = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert states["good"].startswith("up to date: ")
    assert states["crash"] == "it failed with exit code 1: ValueError: no luck last time"
    assert (folder / "benchmarks/results/good.json").read_text() == before


def test_anew_measures_again(measured):
    folder, _ = measured
    before = result(folder, "good")["date"]
    time.sleep(1.0)  # dates have seconds
    done = bench(folder, "--anew", "--only", "good")
    assert done.returncode == 0
    assert "[1 of 1] good 1 of 2 bars met" in done.stderr
    assert result(folder, "good")["date"] > before


def test_quick_leaves_results_and_page_alone(tmp_path):
    folder = make_folder(tmp_path / "quick", one=GOOD, two=GOOD)
    done = bench(folder, "--quick")
    assert done.returncode == 0
    assert "2 claims ran" in done.stdout
    assert result(folder, "two", "results/quick")["arguments"] == ["--quick"]
    assert not (folder / "benchmarks/results/one.json").exists()
    assert not (folder / "docs/benchmarks.md").exists()


def test_a_claim_that_takes_too_long_is_stopped_with_all_it_started(tmp_path):
    body = """\
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
    folder = make_folder(tmp_path / "slow", slow=body)
    done = bench(folder, "--limit", "0.06")
    assert done.returncode == 1
    row = result(folder, "slow")["rows"][0]
    assert row["bar"] == "ends within 3.6 s"
    assert row["reached"] == "was stopped by its limit of 3.6 s"
    pid = int((folder / "benchmarks/results/slow.log").read_text().split()[0])
    assert not is_running(pid)


def is_running(pid):
    """Whether there is such a process, and it is not only waiting to be buried."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


ENDLESS = "print('began', os.getpid(), flush=True)\ntime.sleep(600)\n"


def stop(folder, module, log, *arguments, number=signal.SIGINT):
    """Start the module, stop it once the log tells that something began; what it said."""
    # Python in the background would otherwise ignore Ctrl-C.
    reset = "import signal, runpy; signal.signal(signal.SIGINT, signal.default_int_handler);"
    call = f"{reset} runpy.run_module({module!r}, None, '__main__', alter_sys=True)"
    running = subprocess.Popen(
        [*command()[:1], "-c", call, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    for _ in range(3000):
        if log.exists() and "began" in log.read_text():
            break
        time.sleep(0.1)
    os.kill(running.pid, number)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_ctrl_c_keeps_what_is_done_and_tells_how_to_go_on(tmp_path, number):
    folder = make_folder(tmp_path / "stopped", first=GOOD, endless=ENDLESS, last=GOOD)
    log = folder / "benchmarks/results/endless.log"
    said = stop(folder, "benchmarks", log, number=number)
    assert "Stopped: measured and kept 1 claim, left 2." in said
    assert "start the same command again" in said
    assert result(folder, "first")["rows"]
    assert not (folder / "benchmarks/results/endless.json").exists()
    assert "KeyboardInterrupt" in log.read_text()  # told, not killed
    assert not is_running(int(log.read_text().split()[1]))


def test_what_would_begin_anew_is_told_how_to_go_on(tmp_path):
    folder = make_folder(tmp_path / "quick", first=ENDLESS, last=GOOD)
    log = folder / "benchmarks/results/quick/first.log"
    said = stop(folder, "benchmarks", log, "--quick", "--anew", "--limit", "9")
    again = r"python -m benchmarks --quick --anew --limit 9 --only first( last)?"
    assert re.search(rf"To go on, run: {again}\n", said)


def test_ctrl_c_in_a_single_claim_is_one_line(tmp_path):
    wait = (
        "    print('began', file=open('log', 'w'), flush=True)\n    __import__('time').sleep(600)\n"
    )
    whole = WHOLE.replace("def measure(options):\n", f"def measure(options):\n{wait}")
    folder = make_folder(tmp_path / "single", whole=whole)
    said = stop(folder, "benchmarks.whole", folder / "log", "--quick")
    assert said == "Stopped before its end: no result of whole is written.\n"


def test_quick_judges_nothing(tmp_path):
    folder = make_folder(tmp_path / "unjudged", whole=WHOLE)
    done = bench(folder, "--quick")
    assert "[1 of 1] whole ran (" in done.stderr
    said = (folder / "benchmarks/results/quick/whole.log").read_text()
    assert "speed" in said
    assert "met" not in said


def test_a_reader_of_the_list_may_stop_early(tmp_path):
    folder = make_folder(tmp_path / "piped", one=GOOD, two=GOOD)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command("--list"), cwd=folder, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert done.stderr == b""


def test_help_tells_what_to_type(measured):
    text = bench(measured[0], "--help").stdout
    assert text.startswith("usage: python -m benchmarks ")
    assert "these claims instead of all" in text
