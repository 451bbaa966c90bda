"""Import a user's modules by name or file, and tell whether their code has changed.

A module that is imported registers its members. Importing executes code: nothing here looks for
modules, it takes those that a user, or the config of a run, names.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

HERE = str(Path(__file__).parents[1])


def locate_module(name: str) -> str:
    """The absolute path of a .py file or of a module in the current folder, else the name itself.

    So a run finds it from another folder. A package is its `__init__.py`.
    """
    if _is_file_name(name):
        path = Path(name).expanduser().resolve()
        return str(path / "__init__.py" if (path / "__init__.py").is_file() else path)
    base = Path.cwd().joinpath(*name.split("."))
    found = [p for p in (base / "__init__.py", Path(f"{base}.py")) if p.is_file()]
    return str(found[0].resolve()) if found else name


def short_name(name: str) -> str:
    """A module's name without the folder that it is in here: the same on every machine."""
    path = Path(name)
    if not _is_file_name(name):
        return name
    return f"{path.parent.name}/{path.name}" if path.name == "__init__.py" else path.name


def import_located(name: str) -> ModuleType:
    """Import what `locate_module` returned, once in a process.

    Raises ValueError if there is no such module, or if its code fails.
    """
    path = Path(name) if _is_file_name(name) else None
    if path is not None and not (path.is_file() and path.suffix == ".py"):
        what = "not a .py file" if path.exists() else "not there"
        raise ValueError(
            f"Expected a .py file to import, got {name}, which is {what}. Put it there, or change "
            "the path."
        )
    try:
        return import_module(name) if path is None else _import_file(path)
    except (Exception, SystemExit) as error:
        lacking = error.name if isinstance(error, ModuleNotFoundError) and path is None else None
        if lacking and f"{name}.".startswith(f"{lacking}."):
            raise ValueError(
                f"Expected a module to import, got {name!r}, which is neither in {Path.cwd()} nor "
                "installed. Check the name, install its package, or give the path of a .py file."
            ) from error
        said = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"Importing {name} failed{_line(error)}: {type(error).__name__}: {said}. Mend that "
            "module."
        ) from error


def fingerprints(names: Sequence[str]) -> list[dict[str, str]]:
    """SHA-256 of the code of each module, and its version if it is an installed package.

    The code is that of the whole package, or of one file outside a package.
    """
    return [{"module": short_name(n), **_fingerprint(import_located(n))} for n in names]


def _is_file_name(name: str) -> bool:
    return name.endswith(".py") or os.sep in name


def _import_file(path: Path) -> ModuleType:
    """Import a file under its own name, as part of its package if it has one."""
    for there in list(sys.modules.values()):
        if _file_of(there, path.name) == path:
            return there
    parts, root = [] if path.name == "__init__.py" else [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts, root = [root.name, *parts], root.parent
    name = ".".join(parts)
    if root == path.parent and not _is_free(name, path):
        return _execute(path, f"{name}_{hashlib.sha256(bytes(path)).hexdigest()[:12]}", root)
    with _first_on_path(root):
        module = import_module(name)
    if _file_of(module, path.name) != path:
        raise ImportError(f"the name {name} is taken by {module.__file__}")
    return module


def _is_free(name: str, path: Path) -> bool:
    """Whether no other module has the name of a file outside a package."""
    if name in sys.modules or not name.isidentifier():
        return False
    spec = find_spec(name)
    return spec is None or Path(spec.origin or "").resolve() == path


def _execute(path: Path, name: str, root: Path) -> ModuleType:
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        with _first_on_path(root):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """Let a module import its neighbours."""
    sys.path.insert(0, str(folder))
    invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _file_of(module: object, name: str) -> Path | None:
    """File of a module, if it ends in `name`; lazy modules are not woken."""
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return Path(file).resolve() if isinstance(file, str) and file.endswith(name) else None


def _line(error: BaseException) -> str:
    """Where the user's code failed; a SyntaxError says it itself."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((HERE, "<frozen", "<string"))
        and "importlib" not in frame.filename
    ]
    return f" at line {own[-1].lineno} of {own[-1].filename}" if own else ""


def _fingerprint(module: ModuleType) -> dict[str, str]:
    top = module.__name__.partition(".")[0]
    roots = [Path(root) for root in getattr(sys.modules.get(top), "__path__", ())]
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    if not roots and module.__file__:
        digest.update(Path(module.__file__).read_bytes())
    try:
        return {"sha256": digest.hexdigest(), "version": version(top)}
    except PackageNotFoundError:
        return {"sha256": digest.hexdigest()}
