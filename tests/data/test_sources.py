"""Whatever holds examples gives the same ones in blocks, again and again, or says why not."""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from maxmargin.data import (
    ArraySource,
    ArrowSource,
    CsrFolder,
    CsrFolderWriter,
    DaskSource,
    DatasetSource,
    Examples,
    FunctionSource,
    LibsvmFile,
    Source,
    SvmHmmFile,
    open_examples,
)

RANDOM = np.random.default_rng(0)
X = np.round(RANDOM.normal(size=(50, 4)), 3)
Y = RANDOM.integers(0, 3, size=50)


def rows(source):
    """All examples of a source of rows, dense."""
    blocks = list(source.batches())
    parts = [block.X.toarray() if sp.issparse(block.X) else block.X for block in blocks]
    width = max(part.shape[1] for part in parts)
    parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
    return np.concatenate(parts), np.concatenate([block.y for block in blocks])


def pairs():
    yield from zip(X, Y, strict=True)


class Items:
    """As PyTorch has them."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        if not 0 <= number < len(self.items):
            raise IndexError(number)
        return self.items[number]


class ItemsAtOnce(Items):
    """As Hugging Face has them."""

    def __getitems__(self, numbers):
        return [self.items[number] for number in numbers]


class Tensor:
    """Numbers that become an array when asked."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.ndim = self.values.ndim

    def __array__(self, dtype=None, copy=None):
        return self.values

    def item(self):
        return self.values.item()


class Again:
    """Starts anew each time it is iterated."""

    def __iter__(self):
        return pairs()


def blocks_of_its_own():
    for start in range(0, 50, 20):
        yield Examples(sp.csr_matrix(X[start : start + 20]), Y[start : start + 20])


def npy(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return tmp_path / "X.npy", tmp_path / "y.npy"


def libsvm(tmp_path):
    lines = (f"{y} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x)) for x, y in pairs())
    (tmp_path / "data.svm").write_text("\n".join(lines))
    return tmp_path / "data.svm"


def folder(tmp_path):
    with CsrFolderWriter(tmp_path / "stored") as writer:
        writer.append(Examples(X[:20], Y[:20]))
        writer.append(Examples(sp.csr_array(X[20:]), Y[20:]))
    return str(tmp_path / "stored")


def table(tmp_path=None, lists=False):
    pa = pytest.importorskip("pyarrow")
    if lists:
        return pa.table({"id": [str(i) for i in range(50)], "x": X.tolist(), "label": Y})
    return pa.table({"label": Y} | {f"f{j}": X[:, j] for j in range(4)})


def parquet(tmp_path, lists=False):
    contents = table(lists=lists)
    import pyarrow.parquet as pq

    pq.write_table(contents, tmp_path / "table.parquet", row_group_size=20)
    return tmp_path / "table.parquet"


def parquet_folder(tmp_path):
    contents = table()
    import pyarrow.parquet as pq

    (tmp_path / "parts").mkdir()
    for i, start in enumerate(range(0, 50, 20)):
        pq.write_table(contents.slice(start, 20), tmp_path / "parts" / f"{i}.parquet")
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    return tmp_path / "parts"


def feather(tmp_path):
    contents = table(lists=True)
    import pyarrow.feather

    pyarrow.feather.write_feather(contents, tmp_path / "table.feather", chunksize=20)
    return tmp_path / "table.feather"


def dask_bag(tmp_path):
    return pytest.importorskip("dask.bag").from_sequence(list(pairs()), npartitions=4)


def frame():
    return pd.DataFrame(X, columns=list("abcd")).assign(label=Y, note="text")


def dask_frame(tmp_path):
    return pytest.importorskip("dask.dataframe").from_pandas(frame(), npartitions=3)


KINDS = {
    "arrays": (lambda _: (X, Y), ArraySource),
    "lists": (lambda _: (X.tolist(), Y.tolist()), ArraySource),
    "sparse": (lambda _: (sp.coo_matrix(X), Y), ArraySource),
    "frame and series": (lambda _: (pd.DataFrame(X), pd.Series(Y)), ArraySource),
    "frame with its target": (lambda _: frame(), ArraySource),
    "tensors": (lambda _: (Tensor(X), Tensor(Y)), ArraySource),
    "mapped": (lambda tmp: (np.load(npy(tmp)[0], mmap_mode="r"), Y), ArraySource),
    "npy files": (npy, ArraySource),
    "libsvm": (libsvm, LibsvmFile),
    "folder": (folder, CsrFolder),
    "parquet": (parquet, ArrowSource),
    "parquet of lists": (partial(parquet, lists=True), ArrowSource),
    "folder of parquet": (parquet_folder, ArrowSource),
    "feather": (feather, ArrowSource),
    "generator function": (lambda _: pairs, FunctionSource),
    "function of blocks": (lambda _: blocks_of_its_own, FunctionSource),
    "function of sparse rows": (
        lambda _: lambda: ((sp.csr_matrix(x), y) for x, y in pairs()),
        FunctionSource,
    ),
    "iterable": (lambda _: Again(), FunctionSource),
    "list of pairs": (lambda _: list(pairs()), DatasetSource),
    "data set of tensors": (
        lambda _: Items([(Tensor(x), Tensor(y)) for x, y in pairs()]),
        DatasetSource,
    ),
    "data set of dictionaries": (
        lambda _: ItemsAtOnce([{"x": x.tolist(), "label": int(y)} for x, y in pairs()]),
        DatasetSource,
    ),
    "data set of columns": (
        lambda _: Items([dict(zip("abcdy", [*x, y], strict=True)) for x, y in pairs()]),
        DatasetSource,
    ),
    "bag": (dask_bag, DaskSource),
    "dask frame": (dask_frame, DaskSource),
}
SMALL = {
    ArraySource: {"batch_bytes": 200},
    LibsvmFile: {"batch_bytes": 300},
    ArrowSource: {"batch_bytes": 300},
    FunctionSource: {"batch_examples": 7},
    DatasetSource: {"batch_examples": 7},
}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_examples(tmp_path, kind, small):
    make, expected = KINDS[kind]
    data = make(tmp_path)
    options = SMALL.get(expected, {}) if small else {}
    source = open_examples(data, **options)
    assert type(source) is expected
    prints = [source.fingerprint()]
    for _ in range(2):
        found, y = rows(source)
        np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(y, Y)
        assert (source.n_examples, source.n_features) == X.shape
        prints.append(source.fingerprint())
    if small and expected not in (DaskSource, CsrFolder):
        least = 1 if kind in ("lists", "function of blocks") else 3
        assert sum(1 for _ in source.batches()) >= least
    classes = source.classes()
    assert classes.tolist() == [0, 1, 2]
    assert source.classes() is classes
    assert prints == [open_examples(data, **options).fingerprint()] * 3
    assert repr(source).startswith(f"{expected.__name__}(")
    assert repr(source).endswith("50 examples, 4 features)")
    assert open_examples(source) is source


def changed(values):
    other = values.copy()
    other.flat[-1] += 1
    return other


def test_fingerprints_tell_data_apart(tmp_path):
    libsvm(tmp_path)
    sources = [
        ArraySource(X, Y),
        ArraySource(changed(X), Y),
        ArraySource(X, changed(Y)),
        ArraySource(X.astype(np.float32), Y),
        ArraySource(sp.csr_array(X), Y),
        ArraySource(X[:-1], Y[:-1]),
        FunctionSource(pairs),
        FunctionSource(lambda: zip(changed(X), Y, strict=True)),
        DatasetSource(list(pairs())),
        DatasetSource(list(pairs())[:-1]),
        DatasetSource([({"word": "a", "tags": {"b", "c"}}, "x")]),
        DatasetSource([({"word": "a", "tags": {"b", "d"}}, "x")]),
        LibsvmFile(tmp_path / "data.svm"),
    ]
    assert len({source.fingerprint() for source in sources}) == len(sources)


def test_fingerprints_of_large_arrays_look_at_a_part(tmp_path):
    large = np.arange(2_000_000.0).reshape(-1, 4)
    print_of = lambda X: ArraySource(X, np.zeros(len(X))).fingerprint()  # noqa: E731
    assert print_of(large) == print_of(large.copy()) != print_of(changed(large))
    assert print_of(np.asfortranarray(large)) == print_of(np.asfortranarray(large.copy()))
    assert print_of(large[::2]) == print_of(large.copy()[::2]) != print_of(large[1::2])
    np.save(tmp_path / "large.npy", large)
    assert print_of(np.load(tmp_path / "large.npy", mmap_mode="r")) == print_of(large)


def test_fingerprints_are_the_same_in_another_process():
    script = (
        "from maxmargin.data import DatasetSource\n"
        "items = [({'w': {'a', 'b', 'c'}, 'v': 1.5}, 'x'), ([1, 2], None)]\n"
        "print(DatasetSource(items).fingerprint())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_generator_that_does_not_start_anew():
    once = iter(list(pairs()))
    source = open_examples(lambda: once)
    rows(source)
    with pytest.raises(ValueError) as raised:
        list(source.batches())
    assert str(raised.value) == (
        "The generator gave 0 examples on the second pass but 50 on the first: give a function "
        "that starts anew."
    )


@pytest.mark.parametrize("second", [5, 15])
def test_a_generator_that_gives_another_number(second):
    lengths = iter([10, 10, second])
    source = open_examples(lambda: zip(X[: next(lengths)], Y, strict=False), batch_examples=4)
    for _ in range(2):
        list(source.batches())
    found = "5" if second == 5 else "at least 12"
    with pytest.raises(ValueError, match=f"gave {found} examples on the third pass but 10 on the"):
        list(source.batches())


def test_a_pass_that_is_broken_off_teaches_nothing():
    source = open_examples(pairs, batch_examples=10)
    next(source.batches())
    assert source.n_examples is None
    assert source.n_features is None
    assert repr(source) == "FunctionSource(pairs, not counted yet)"


def test_one_shot_iterators_are_refused():
    for once in (pairs(), iter([1]), map(str, [1]), zip(X, Y, strict=True)):
        with pytest.raises(ValueError, match="can be gone through only once: give the function"):
            open_examples(once)


def test_inputs_that_are_no_rows():
    sentences = [["Dogs", "bark"], ["Go"]]
    tags = [["N", "V"], ["V"]]
    source = open_examples(sentences, tags)
    [block] = source.batches()
    assert block == Examples(sentences, tags)
    assert source.n_features is None
    assert source.classes().tolist() == ["N", "V"]
    matrices = [RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(1, 2))]
    [block] = open_examples(
        lambda: zip(matrices, [np.array([0, 1, 2]), np.array([1])], strict=True)
    ).batches()
    assert block.X[0] is matrices[0]
    [block] = open_examples([([1, 2, 3], ["a", "b", "c"]), ([4], ["a"])]).batches()
    assert block.X == [[1, 2, 3], [4]]
    images = RANDOM.normal(size=(5, 2, 2))
    assert len(next(open_examples(images, range(5)).batches()).X) == 5


def test_labels_of_all_kinds():
    assert open_examples(X[:3], ["b", "a", "b"]).classes().tolist() == ["a", "b"]
    assert open_examples(X[:3], [{"b"}, {"a", "c"}, set()]).classes().tolist() == ["a", "b", "c"]
    assert open_examples(X[:3], np.array([None, 1, 2], dtype=object)).y == [None, 1, 2]
    with pytest.raises(ValueError, match="y mixes numbers and strings, such as 1 and"):
        open_examples(X[:3], [("a",), (1,), ()]).classes()
    with pytest.raises(ValueError, match="Some targets are numbers and some are strings"):
        open_examples(X[:2], ["a", 1])


def test_svm_hmm_by_its_qid(tmp_path):
    path = tmp_path / "tags"
    path.write_text("# comment\n1 qid:1 1:1\n2 qid:1 2:1\n1 qid:2 1:1\n")
    source = open_examples(path)
    assert type(source) is SvmHmmFile
    assert [len(x.indptr) - 1 for block in source.batches() for x in block.X] == [2, 1]


def test_a_very_long_first_line(tmp_path):
    path = tmp_path / "wide.svm"
    path.write_text("1 " + " ".join(f"{j}:0.5" for j in range(1, 30_000)) + "\n2 1:1\n")
    source = open_examples(path)
    assert rows(source)[0].shape == (2, 29_999)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda tmp: open_examples(3), "cannot be read from a int: give inputs and targets"),
        (lambda tmp: open_examples(X), "A ndarray holds inputs only: give the targets as well"),
        (lambda tmp: open_examples(sp.csr_matrix(X)), "A csr_matrix holds inputs only"),
        (lambda tmp: open_examples(npy(tmp)[0]), r"X\.npy' holds inputs only: give the targets"),
        (lambda tmp: open_examples(libsvm(tmp), Y), "holds the targets, too: leave out y"),
        (lambda tmp: open_examples(X, Y[:-1]), "X has 50 examples but y has 49: give one"),
        (lambda tmp: open_examples(X.astype(str), Y), "X is a matrix of <U.*, but must hold"),
        (lambda tmp: open_examples(tmp), r"is a folder without meta\.json, .* Parquet or Arrow"),
        (lambda tmp: open_examples(X, Y, on_error="skip"), "ArraySource has no option 'on_error'"),
        (lambda tmp: open_examples(ArraySource(X, Y), batch_bytes=1), "is open already: options"),
        (lambda tmp: list(open_examples(X.tolist()).batches()), "Example 0 is of type list, but"),
        (lambda tmp: list(open_examples([(1, 2, 3)]).batches()), "Example 0 is a tuple of 3, but"),
        (lambda tmp: open_examples(lambda one: one), "must take no arguments .*functools.partial"),
        (lambda tmp: list(open_examples(lambda: 3).batches()), "must return examples one after"),
        (
            lambda tmp: list(open_examples(lambda: [([1, 2], 0), ([1], 0)]).batches()),
            "Example 1 has 1 features, but example 0 has 2: a sequence must be a matrix",
        ),
        (
            lambda tmp: list(
                open_examples(lambda: [Examples(X[:1], [0]), Examples(X[:1, :2], [0])]).batches()
            ),
            "gave rows of 2 and of 4 features among its first 2 examples",
        ),
        (lambda tmp: open_examples(frame().drop(columns="label")), "is the target. Name it with"),
        (
            lambda tmp: open_examples(frame(), target="nothing"),
            "target names the column 'nothing', but there are only 'a', 'b'",
        ),
        (lambda tmp: open_examples(frame(), features=["a", "note"]), "'note' .* holds no numbers"),
        (
            lambda tmp: list(open_examples([{"a": "x", "b": "z", "y": 1}]).batches()),
            "Which of the columns 'a', 'b', 'y' hold the inputs. Name them with features=",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_opened(tmp_path, make, complaint):
    with pytest.raises(ValueError, match=complaint) as raised:
        make(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"5.1,3.5,1.4\n", "neither lines of LIBSVM's .* begins with b'5.1,3.5,1.4'"),
        (b"\x00\x01\x02", "neither lines of LIBSVM's"),
        (b"", "holds no examples"),
        (b"# only\n\n", "holds no examples"),
    ],
)
def test_files_of_no_known_kind(tmp_path, content, complaint):
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        open_examples(tmp_path / "data")
    with pytest.raises(FileNotFoundError, match="There is no file or folder 'missing'"):
        open_examples("missing")


def test_a_loader_is_refused():
    class DataLoader:
        dataset, batch_size = [], 4

        def __iter__(self):
            return iter([])

        def __len__(self):
            return 0

    with pytest.raises(ValueError, match=r"A DataLoader makes batches, .* give the data set"):
        open_examples(DataLoader())


def test_named_columns(tmp_path):
    items = [{"text": "good", "stars": 5, "id": 1}, {"text": "bad", "stars": 1, "id": 2}]
    [block] = open_examples(items, features="text", target="stars").batches()
    assert block.X == ["good", "bad"]
    assert block.y.tolist() == [5, 1]
    [block] = open_examples(pd.DataFrame(items), features="text", target="stars").batches()
    assert block.X == ["good", "bad"]
    found, y = rows(open_examples(frame(), features=["b", "a"], target="note"))
    np.testing.assert_array_equal(found, X[:, [1, 0]])
    assert set(y.tolist()) == {"text"}


def test_parquet_columns_and_what_is_missing(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    columns = {
        "text": ["a", "b"], "tags": [["N"], ["V", "N"]],
        "kind": pa.array(["p", "q"]).dictionary_encode(),
        "n": [1.0, None], "uneven": [[1.0], [1.0, 2.0]], "f": pa.array([1, 2], pa.float32()),
        "holes": [[1.0], [None]],
    }  # fmt: skip
    pq.write_table(pa.table(columns), path)
    [block] = open_examples(path, features="text", target="tags").batches()
    assert block == Examples(["a", "b"], [["N"], ["V", "N"]])
    [block] = open_examples(path, features=["f"], target="kind").batches()
    assert block.X.tolist() == [[1], [2]]
    assert block.X.dtype == np.float32
    assert block.y.tolist() == ["p", "q"]
    for options, complaint in (
        ({"features": ["n"], "target": "f"}, r"t\.parquet, row 0 .* no value in the column 'n'"),
        ({"features": "uneven", "target": "f"}, "column 'uneven' has lists of 1 and of 2 numbers"),
        ({"features": "holes", "target": "f"}, "has a list in which a number is missing"),
        ({"features": ["f", "text"], "target": "kind"}, "do not all hold numbers"),
        ({"features": "f"}, "is the target. Name it with target="),
    ):
        with pytest.raises(ValueError, match=complaint):
            list(open_examples(path, **options).batches())


def test_parquet_files_that_differ(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for name in ("a", "b"):
        pq.write_table(pa.table({name: [1.0], "y": [0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet has no column 'a', which others have"):
        open_examples(tmp_path)
    with pytest.raises(ValueError, match="is no Parquet or Arrow file"):
        ArrowSource(libsvm(tmp_path))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        ArrowSource([tmp_path / "missing"])


def test_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1....")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="need the package pyarrow: pip install pyarrow"):
        open_examples(tmp_path / "t.parquet")


def test_a_pass_over_mapped_arrays_takes_the_memory_of_a_block(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((1 << 17, 64)))
    np.save(tmp_path / "y.npy", np.ones(1 << 17))
    script = (
        "import sys; from maxmargin.data import open_examples\n"
        "def resident():\n"
        "    fields = open('/proc/self/status').read().split('VmRSS:')[1].split()\n"
        "    return int(fields[0])\n"
        "source = open_examples(sys.argv[1], sys.argv[2], batch_bytes=1 << 20)\n"
        "before, total, most = resident(), 0.0, 0\n"
        "for block in source.batches():\n"
        "    total += block.X.sum()\n"
        "    most = max(most, resident() - before)\n"
        "print(int(total), most)"
    )
    if not os.path.exists("/proc/self/status"):
        pytest.skip("memory is told by /proc")
    command = [sys.executable, "-c", script, str(tmp_path / "X.npy"), str(tmp_path / "y.npy")]
    total, most = subprocess.run(command, capture_output=True, check=True).stdout.split()
    assert int(total) == (1 << 17) * 64
    assert int(most) < 10_000  # of 64,000 kilobytes


def test_private_changes_of_mapped_arrays_stay(tmp_path):
    path, _ = npy(tmp_path)
    mapped = np.load(path, mmap_mode="c")
    mapped[0, 0] = 77
    source = open_examples(mapped, Y)
    assert rows(source)[0][0, 0] == rows(source)[0][0, 0] == 77


def test_a_source_of_ones_own():
    class Own(Source):
        def batches(self):
            yield Examples(X, Y)

    source = open_examples(Own())
    assert source.n_examples is source.n_features is source.progress is None
    assert source.classes().tolist() == [0, 1, 2]
    assert source.fingerprint() == Own().fingerprint()
