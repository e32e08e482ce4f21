"""This finds what is the user's own by its name, `package.module:attribute`, or says what is missing."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedge.errors import ConfigError, FedgeError, brief, suggestion

PATTERN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_name(given: object) -> bool:
    """Say whether this has the form package.module:attribute."""
    return isinstance(given, str) and PATTERN.fullmatch(given) is not None


def name_of(kind: str, function: Any) -> str:
    """Return the name by which a function that was passed in from Python can be found again."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    if not is_name(name):
        raise ConfigError(f"the {kind} {brief(name)} has no name to be found by again; define it at the top of a file")
    return name


def find(key: str, name: str, *takes: tuple[str, ...]) -> Callable[..., Any]:
    """Import the function of this name, which `key` asks for and which must take one of these lists of arguments."""
    module_name, _, attribute = name.partition(":")
    module = _import(key, name, module_name)
    function = getattr(module, attribute, None)
    if function is None:
        near = suggestion(attribute, [n for n in vars(module) if not n.startswith("_")])
        raise ConfigError(
            f"{key}={brief(name)}: module {module_name} has no '{attribute}'; write its name after ':'{near}"
        )
    require_takes(key, name, function, *takes)
    found: Callable[..., Any] = function
    return found


def require_takes(key: str, name: str, function: Any, *takes: tuple[str, ...]) -> None:
    """Refuse what cannot be called with one of these lists of positional arguments."""
    wanted = " or ".join(f"({', '.join(names)})" for names in takes)
    if not callable(function):
        raise ConfigError(f"{key}={brief(name)} is a {type(function).__name__}; give a function of {wanted}")
    if not any(accepts(function, names) for names in takes):
        raise ConfigError(f"{key}={brief(name)} must be a function of {wanted}: {_misfit(function, takes[0])}")


def accepts(function: Callable[..., Any], takes: tuple[str, ...]) -> bool:
    """Say whether a function can be called with these positional arguments."""
    return not _misfit(function, takes)


def _misfit(function: Callable[..., Any], takes: tuple[str, ...]) -> str:
    """Say why a function cannot be called with these positional arguments; nothing where it can."""
    try:
        inspect.signature(function).bind(*takes)
    except ValueError:  # a builtin that does not tell
        return ""
    except TypeError as problem:
        return str(problem)
    return ""


def call(
    what: str, function: Callable[..., Any], *given: Any, error: type[FedgeError] = ConfigError, **own: Any
) -> Any:
    """Call a function of the user's own; what goes wrong in it is told in a sentence."""
    try:
        return function(*given, **own)
    except FedgeError:
        raise
    except Exception as problem:
        reason = brief((str(problem).splitlines() or [""])[0])
        raise error(f"{what} failed, {type(problem).__name__}: {reason}; mend it") from None


def source_digest(function: Callable[..., Any]) -> str:
    """Return the SHA-256 of the file that a function stands in, or of its name where there is no such file."""
    try:
        content = Path(inspect.getsourcefile(function) or "").read_bytes()
    except (OSError, TypeError):
        content = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}".encode()
    return hashlib.sha256(content).hexdigest()


def _import(key: str, name: str, module_name: str) -> Any:
    _look_here_too()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        missing = problem.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ConfigError(
                f"{key}={brief(name)}: there is no module {missing} in {Path.cwd()} or among the installed "
                "packages; run fedge where it is, or install it"
            ) from None
        raise ConfigError(f"{key}={brief(name)}: {module_name} needs the module {missing}; install it") from None
    except Exception as problem:
        reason = (str(problem).splitlines() or [""])[0]
        kind = type(problem).__name__
        raise ConfigError(
            f"{key}={brief(name)}: importing {module_name} failed, {kind}: {brief(reason)}; mend it"
        ) from None


def _look_here_too() -> None:
    """Look in the current folder too, after the installed packages: a file there never stands in for one of those."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()
