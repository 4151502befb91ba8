"""Machine code of compiled routines: shipped with the package, kept by the user, or made anew.

Machine code is named by what it was compiled from: the code of the routine, of all that it refers
to, and its signature. So it is found in whatever folder it lies, and never stale. Everything that
relies on the internals of numba stands here; tried with the versions `TRIED`.
"""

import functools
import hashlib
import os
import pickle
import platform
import sys
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core.caching import _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import compile_result
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.serialize import dumps

from maxmargin.compiled.catalogue import compile_catalogue, spelled

TRIED = ("0.68",)
"""Versions of numba that all of this was tried with."""

SHIPPED = Path(__file__).parent / "shipped"
"""What the wheel brings: a folder for each tier of processors."""

TIERS = {
    "x86-64-v3": "avx avx2 bmi bmi2 cmov cx16 f16c fma lzcnt movbe popcnt sahf sse4.2 xsave",
    "x86-64-v2": "cmov cx16 popcnt sahf sse4.2",
}
"""Tiers of x86 processors, the best first, and the features that a processor must have."""

_VERSION = f"{numba.__version__} {sys.implementation.cache_tag} {platform.system()}"
_KEPT = 3
"""Versions of a routine that are kept for a signature, so that two checkouts do not alternate."""


def tiers() -> list[str]:
    """The tiers that wheels for this kind of machine are built for, the best first."""
    return list(TIERS) if platform.machine() in ("x86_64", "AMD64") else [platform.machine()]


def compile_for(tier: str, folder: Path) -> None:
    """Compile for the processors of a tier from now on, into a folder, before anything else is."""
    numba.config.CPU_NAME = tier if tier in TIERS else "generic"
    numba.config.CPU_FEATURES = ""
    _building.append((folder, tier))


_building: list[tuple[Path, str]] = []


def compile_tier(folder: str, tier: str, processes: str) -> None:
    """Compile all that is shipped for a tier, into its folder in another one, as a build does."""
    own = Path(folder, tier)
    own.mkdir()
    for _ in compile_catalogue(int(processes), functools.partial(compile_for, tier, own)):
        pass


@functools.cache
def _tier() -> str | None:
    """The best tier that this processor can run; None where numba was told another processor."""
    if numba.config.CPU_NAME is not None:
        return None
    features = llvm.get_host_cpu_features()
    for tier in tiers():
        if all(features.get(one) for one in TIERS.get(tier, "").split()):
            return tier
    return None


class UnnamedError(Exception):
    """A routine refers to something that has no description, so that its code has no digest."""


class Key(NamedTuple):
    """What machine code depends on: all of it decides whether it may be run."""

    name: str
    signature: str
    code: str
    version: str
    target: str

    def path(self, folder: Path) -> Path:
        """The file in a folder, which begins as those of other code and versions do."""
        alike, own = _hash(repr((self.name, self.signature, self.target))), _hash(repr(self))
        return folder / f"{self.name.removeprefix('maxmargin.')[-80:]}-{alike[:12]}-{own[:20]}.code"


class MachineCode(_Cache):  # type: ignore[misc]
    """Numba's cache of one routine."""

    def __init__(self, routine: Any) -> None:
        # Before a first call numba asks all installed packages whether they add types of arguments,
        # for ten milliseconds; ours are arrays, numbers and tuples.
        routine._compilation_chain_init_hook = lambda: None
        self._routine = routine
        self._name = f"{routine.py_func.__module__}.{routine.py_func.__qualname__}"

    @property
    def cache_path(self) -> str | None:
        folder = user_folder()
        return None if folder is None else str(folder)

    def enable(self) -> None:
        """Machine code is always kept."""

    disable = enable

    def flush(self) -> None:
        """Machine code is never stale."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The routine compiled for a signature; None where it has to be compiled."""
        if self._routine.targetoptions.get("_nrt", True):
            # What numba must know to compile takes most of a second; to run, only its memory does.
            target_context.refresh()
        with suppress(UnnamedError):
            for folder, key in self._places(sig, target_context.codegen()):
                payload = _read(folder, key)
                if payload is not None:
                    return _rebuilt(target_context, *payload)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled; a failure to write is ignored."""
        # A full disk, perhaps; what was compiled is in memory.
        with suppress(UnnamedError, OSError):
            if not (data.lifted or data.library.has_dynamic_globals):
                *_, (folder, key) = self._places(sig, data.codegen)
                if folder is None:
                    _warn_of_compiling()
                else:
                    _write(folder, key, _reduced(data))

    def _places(self, sig: Any, codegen: Any) -> Iterator[tuple[Path | None, Key]]:
        """Folders and keys under which the machine code may lie; it is kept in the last one."""
        native = repr(codegen.magic_tuple())
        key = Key(self._name, spelled(sig), digest(self._routine), _VERSION, native)
        if _building:
            (folder, tier), *_ = _building
            yield folder, key._replace(target=tier)
            return
        shipped = _tier()
        if shipped is not None and SHIPPED.exists():
            yield SHIPPED / shipped, key._replace(target=shipped)
        yield user_folder(), key


@functools.cache
def user_folder() -> Path | None:
    """The folder of what is compiled on this machine; None if none can be written to."""
    try:
        if numba.config.CACHE_DIR:
            folder = Path(numba.config.CACHE_DIR)
        elif sys.platform == "win32":
            folder = Path(os.environ.get("LOCALAPPDATA") or Path.home())
        elif sys.platform == "darwin":
            folder = Path.home() / "Library" / "Caches"
        else:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = folder / "maxmargin"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no such place, or nobody's home
        return None
    return folder if os.access(folder, os.W_OK) else None


@functools.cache
def _warn_of_compiling() -> None:
    """Warn, once, that each process compiles anew."""
    warnings.warn(
        "No folder can be written to for compiled code, so that each process compiles anew, for "
        "some ten seconds: set the environment variable NUMBA_CACHE_DIR to a folder of yours.",
        RuntimeWarning,
        stacklevel=2,
    )


def _reduced(result: Any) -> Any:
    """What numba saves, less what only readers of types need, a third of it.

    Environments hold the constants of functions that were compiled into this one: to restore one
    imports its module, of numba, for nothing if there are none.
    """
    *payload, environments = result._replace(type_annotation="")._reduce()
    return (*payload, tuple(one for one in environments if one.consts))


class LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Machine code from a file; its bitcode is parsed when a routine that calls it is compiled.

    Numba parses it at once, which takes as long as all else of loading a routine.
    """

    _shared_module: Any

    def __init__(self, codegen: Any, name: str, machine_code: bytes, bitcode: bytes) -> None:
        super().__init__(codegen, name)
        self._bitcode = bitcode
        self.enable_object_caching()
        self._set_compiled_object(machine_code)
        self._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = llvm.parse_bitcode(self._bitcode)
            self._codegen._engine._load_defined_symbols(self._shared_module)
        return self._shared_module

    def get_pointer_to_function(self, name: str) -> Any:
        """Address of a function; zero if it is none of this library's."""
        if not self._codegen._engine.is_symbol_defined(name):
            self._get_module_for_linking()
        return super().get_pointer_to_function(name)


def _rebuilt(
    context: Any,
    library_data: Any,
    function: Any,
    environment: Any,
    signature: Any,
    object_mode: bool,
    lifted: Any,
    annotation: str,
    reload_init: Any,
    environments: Any,
) -> Any:
    """What numba compiled, as it was saved by `_reduced`."""
    for prepare in reload_init or ():
        prepare()
    codegen = context.codegen()
    name, _, (machine_code, bitcode) = library_data
    library = LoadedLibrary(codegen, name, machine_code, bitcode)
    codegen._engine._defined_symbols.add(function.llvm_cpython_wrapper_name)
    entry_point = context.get_executable(library, function, environment)
    for one in environments:
        codegen.set_env(one.env_name, one)
    return compile_result(
        typing_context=context.typing_context,
        target_context=context,
        entry_point=entry_point,
        type_annotation=annotation,
        signature=signature,
        objectmode=object_mode,
        lifted=lifted,
        fndesc=function,
        library=library,
        environment=environment,
        reload_init=reload_init,
        referenced_envs=environments,
    )


# Files ------------------------------------------------------------------------------------------


def _read(folder: Path | None, key: Key) -> Any:
    """What was saved under a key; None if it is not there, or damaged in any way."""
    if folder is None:
        return None
    try:
        content = BytesIO(zlib.decompress(key.path(folder).read_bytes()))
        return pickle.load(content) if pickle.load(content) == key else None
    except Exception:
        return None


def _write(folder: Path, key: Key, payload: Any) -> None:
    """Save under a key, atomically: other processes may do the same."""
    path = key.path(folder)
    beside = path.with_suffix(f".{uuid.uuid4().hex[:16]}")
    try:
        beside.write_bytes(zlib.compress(pickle.dumps(tuple(key)) + dumps(payload)))
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    siblings = folder.glob(f"{path.name.rpartition('-')[0]}-*.code")
    for old in sorted(siblings, key=lambda one: one.stat().st_mtime)[:-_KEPT]:
        old.unlink(missing_ok=True)


# Digests ----------------------------------------------------------------------------------------

_KNOWN_BY_VERSION = {"builtins", "llvmlite", "math", "numba", "numpy", "typing"}
"""Packages whose functions and classes are told by their names."""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def digest(routine: Any) -> str:
    """Hash of a routine's code and options, and of all of ours that it refers to."""
    options = sorted((name, _described(value)) for name, value in routine.targetoptions.items())
    return _hash(repr((options, function_digest(routine.py_func))))


_being_described: set[Any] = set()


@functools.cache
def function_digest(function: FunctionType) -> str:
    """Hash of the code of a function, and of all of ours that it refers to."""
    if function in _being_described:
        return function.__qualname__  # of a recursion
    _being_described.add(function)
    try:
        names = sorted(set(_names(function.__code__)) & function.__globals__.keys())
        referred = {name: _described(function.__globals__[name]) for name in names}
        cells = [_described(cell.cell_contents) for cell in function.__closure__ or ()]
        code = _code_described(function.__code__, function.__doc__)
        defaults = _described((function.__defaults__, function.__kwdefaults__))
        return _hash(repr((code, referred, cells, defaults)))
    finally:
        _being_described.discard(function)


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes in a code, and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _code_described(code: CodeType, docstring: str | None) -> str:
    constants = [
        _code_described(one, None) if isinstance(one, CodeType) else _described(one)
        for one in code.co_consts
        if one is not docstring or one is None
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


def _described(value: Any) -> str:
    """What a value is, in words that are the same in every process."""
    for kinds, describe in _DESCRIPTIONS:
        if isinstance(value, kinds):
            return describe(value)
    text = f"{type(value).__name__} {value!r}"
    if " at 0x" in text:
        raise UnnamedError(text)
    return text


def _known_by_version(module: str) -> bool:
    package = module.partition(".")[0]
    return package in _KNOWN_BY_VERSION or package in sys.stdlib_module_names


def _owned(value: Any, describe: Callable[[Any], str]) -> str:
    """A function or a class, by its name if it is of a package with a version."""
    if _known_by_version(value.__module__):
        return f"{value.__module__}.{value.__qualname__}"
    return describe(value)


def _module_described(value: ModuleType) -> str:
    """Its name; any of its attributes may be used, so of ours it would say too little."""
    if not _known_by_version(value.__name__):
        raise UnnamedError(f"the module {value.__name__}: import what is used of it")
    return value.__name__


def _class_described(value: type) -> str:
    members = [
        (name, _described(getattr(member, "__func__", member)))
        for name, member in sorted(vars(value).items())
        if isinstance(member, FunctionType | staticmethod | classmethod | int | float | str)
        and name not in ("__module__", "__doc__", "__firstlineno__")
    ]
    fields = getattr(value, "_fields", getattr(value, "__annotations__", ()))
    return repr((value.__qualname__, list(fields), members))


_DESCRIPTIONS: list[tuple[Any, Callable[[Any], str]]] = [
    (Dispatcher, digest),
    (_Intrinsic, lambda value: function_digest(value._defn)),
    (FunctionType, lambda value: _owned(value, function_digest)),
    (type, lambda value: _owned(value, _class_described)),
    (ModuleType, _module_described),
    (BuiltinFunctionType, lambda value: value.__qualname__),
    (set | frozenset, lambda value: repr(sorted(map(_described, value)))),
    (tuple | list, lambda value: repr(list(map(_described, value)))),
    (dict, lambda value: repr(sorted((k, _described(v)) for k, v in value.items()))),
    (np.ndarray | np.generic, lambda value: f"{value.dtype} {np.asarray(value).tobytes().hex()}"),
]
"""How values of some kinds are described; others by their `repr`."""
