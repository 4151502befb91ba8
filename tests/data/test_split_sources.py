"""Sources in parts: together they give what the whole gives, and each reads its own only."""

import gzip
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from maxmargin.data import FileFormatError, SvmHmmFile, convert, open_examples
from maxmargin.data import libsvm as libsvm_module
from maxmargin.data.files import Section


def rows_of(source):
    """All rows and targets of a source."""
    blocks = list(source.batches())
    dense = [block.X.toarray() if sp.issparse(block.X) else block.X for block in blocks]
    return as_wide(dense), np.concatenate([np.zeros(0, int), *(block.y for block in blocks)])


def as_wide(matrices):
    """Dense matrices on top of each other, with zeros where some are wider."""
    width = max((X.shape[1] for X in matrices), default=0)
    padded = [np.pad(X, [(0, 0), (0, width - X.shape[1])]) for X in matrices]
    return np.concatenate([np.zeros((0, width)), *padded])


def check_parts(source, n_parts):
    """Parts follow one another and are the whole; returns them."""
    parts = source.split(n_parts)
    assert 0 < len(parts) <= n_parts
    X, y = rows_of(source)
    found = [rows_of(pickle.loads(pickle.dumps(part))) for part in parts]
    assert_array_equal(as_wide([X for X, _ in found]), X)
    assert_array_equal(np.concatenate([y for _, y in found]), y)
    return parts


def libsvm_text(n, seed=0, end="\n"):
    random = np.random.default_rng(seed)
    lines = []
    for i in range(n):
        columns = np.flatnonzero(random.random(6) < 0.5) + 1
        entries = "".join(f" {j}:{random.normal():.{random.integers(1, 17)}g}" for j in columns)
        lines.append(f"{i}{entries}" + ("  # why not" if i % 7 == 3 else ""))
        lines += [""] * (i % 11 == 5) + ["# only words"] * (i % 13 == 2)
    return end.join(lines) + end * (seed % 2)


@pytest.fixture
def counted(monkeypatch):
    """Bytes that sections of files give, by their first."""
    read = {}

    class Counting(Section):
        def __init__(self, path, start, end):
            super().__init__(path, start, end)
            self.start = start
            read.setdefault(start, 0)

        def readinto(self, buffer):
            count = super().readinto(buffer)
            read[self.start] += count
            return count

    monkeypatch.setattr(libsvm_module, "Section", Counting)
    return read


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_file_of_lines_is_cut_at_their_ends(tmp_path, counted, end, seed):
    path = tmp_path / "data.libsvm"
    path.write_bytes(libsvm_text(60, seed, end).encode())
    size, longest = path.stat().st_size, max(map(len, path.read_bytes().splitlines(True)))
    for n_parts in (1, 2, 3, 7, 200):
        counted.clear()
        source = open_examples(path, batch_bytes=300)
        source.split(n_parts)
        assert not counted  # whoever cuts reads a few lines
        check_parts(source, n_parts)
        assert sum(counted.values()) == size
        assert max(counted.values()) <= size / n_parts + longest


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet="1: \r\n#2", max_size=60),
    n_parts=st.integers(1, 5),
)
def test_any_text_is_read_in_parts_as_it_is_whole(tmp_path_factory, text, n_parts):
    path = tmp_path_factory.mktemp("any") / "data.libsvm"
    path.write_bytes(text.encode())
    source = libsvm_module.LibsvmFile(path, on_error="skip")
    whole = lines_of(source.widened(300))
    assert [line for part in source.split(n_parts) for line in lines_of(part.widened(300))] == whole


def lines_of(source):
    return [
        (y, x.toarray().tolist()) for block in source.batches() for x, y in zip(*block, strict=True)
    ]


def test_mistakes_are_named_by_their_line_in_the_file(tmp_path):
    path = tmp_path / "data.libsvm"
    text = libsvm_text(60).replace("\n47 ", "\n47 1:much ", 1)
    path.write_text(text)
    with pytest.raises(FileFormatError) as whole:
        rows_of(open_examples(path))
    parts = open_examples(path).split(3)
    rows_of(parts[0])
    with pytest.raises(FileFormatError) as some:
        rows_of(parts[2])
    assert str(some.value) == str(whole.value)


def test_files_that_cannot_be_cut_or_have_changed(tmp_path):
    path = tmp_path / "data.libsvm.gz"
    path.write_bytes(gzip.compress(libsvm_text(20).encode()))
    assert open_examples(path).split(3) is None
    path = tmp_path / "data.libsvm"
    path.write_text(libsvm_text(20))
    part = open_examples(path).split(2)[1]
    path.write_text(libsvm_text(19))
    with pytest.raises(ValueError, match="when it was cut into partitions: all who read it need"):
        rows_of(part)


def test_a_source_can_be_sent_after_it_was_read(tmp_path):
    path = tmp_path / "data.libsvm"
    path.write_text(libsvm_text(20))
    source = open_examples(path)
    blocks = source.batches()
    next(blocks)
    assert_array_equal(rows_of(pickle.loads(pickle.dumps(source)))[1], rows_of(source)[1])


def test_sequences_stay_whole(tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "tags.txt"
    with open(path, "w") as file:
        for number in range(40):
            for position in range(random.integers(1, 9)):
                file.write(f"{random.integers(1, 4)} qid:{number} {position + 1}:1\n")
                file.write("# words\n" * (random.random() < 0.2))
    source = SvmHmmFile(path)
    whole = [tags.tolist() for block in source.batches() for tags in block.y]
    for n_parts in (1, 2, 5, 100):
        parts = SvmHmmFile(path).split(n_parts)
        found = [[t.tolist() for block in part.batches() for t in block.y] for part in parts]
        assert [tags for part in found for tags in part] == whole
        assert all(found)
        assert len(parts) == n_parts or n_parts == 100


@pytest.fixture
def tables(tmp_path):
    """Files of 90, 30 and 60 rows in groups of 30."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X = np.random.default_rng(0).normal(size=(180, 3))

    def write(kind, group=30):
        folder = tmp_path / f"{kind}-{group}"
        folder.mkdir()
        for name, rows in (("a", slice(90)), ("b", slice(90, 120)), ("c", slice(120, 180))):
            columns = {f"x{j}": X[rows, j] for j in range(3)}
            table = pa.table(columns | {"y": np.arange(180)[rows]})
            if kind == "parquet":
                parquet.write_table(table, folder / f"{name}.parquet", row_group_size=group)
            else:
                with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink:
                    options = pa.ipc.IpcWriteOptions(compression="lz4" if group < 30 else None)
                    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
                        writer.write_table(table, max_chunksize=group)
        return folder

    return write


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("group", [7, 30, 1000])
def test_tables_in_parts(tables, kind, group):
    folder = tables(kind, group)
    for n_parts in (1, 2, 3, 5, 200):
        parts = check_parts(open_examples(folder, batch_bytes=200), n_parts)
        sizes = [part.n_examples for part in parts]
        assert max(sizes) <= 1.2 * 180 / len(sizes) + 1  # no part is much larger than others


def test_row_groups_of_others_are_not_read(tables, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tables("parquet")
    read = []
    whole = parquet.ParquetFile.iter_batches

    def iter_batches(self, *arguments, row_groups, **options):
        read.extend(row_groups)
        return whole(self, *arguments, row_groups=row_groups, **options)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", iter_batches)
    found = []
    for part in open_examples(folder).split(3):
        read.clear()
        list(part.batches())
        found.append(list(read))
    assert found == [[0, 1], [2, 0], [0, 1]]  # of a; of a and b; of c


def test_arrays_folders_and_data_sets_in_parts(tmp_path):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(50, 4)) * (random.random((50, 4)) < 0.5), np.arange(50)
    arrays = open_examples(X, y)
    folder = convert(open_examples(sp.csr_array(X), y), tmp_path / "folder", progress=False)
    pairs = open_examples(list(zip(X, y, strict=True)), batch_examples=3)
    whole = len(pickle.dumps(arrays))
    for n_parts in (1, 3, 80):
        check_parts(arrays, n_parts)
        check_parts(folder, n_parts)
        check_parts(pairs, n_parts)
    assert all(len(pickle.dumps(part)) < 0.4 * whole for part in arrays.split(5))
    assert all(len(pickle.dumps(part)) < 0.6 * whole for part in folder.split(5))

    class Items:
        def __len__(self):
            return 50

        def __getitem__(self, number):
            asked.append(number)
            return X[number], y[number]

    asked = []
    part = open_examples(Items()).split(5)[1]
    assert_array_equal(rows_of(part)[1], np.arange(10, 20))
    assert asked == list(range(10, 20))


def test_what_can_only_be_read_from_the_beginning_is_not_split():
    def examples():
        yield [1.0], 1

    assert open_examples(examples).split(2) is None
