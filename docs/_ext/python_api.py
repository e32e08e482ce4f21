"""The Python API as Markdown: signatures, fields with what is said of them in the source, and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import fedge
import fedge.theory

HIDDEN = ("model_config", "model_post_init")
FIRST = ["run", "compare", "from_nnx"]  # what people call; classes and errors follow


def names() -> str:
    """Describe every public name of fedge."""
    others = [name for name in fedge.__all__ if name not in FIRST and not name.startswith("__")]
    errors = [name for name in others if name.endswith("Error")]
    groups = {"Functions": FIRST, "Classes": [n for n in others if n not in errors], "Errors": errors}
    for name in list(groups["Classes"]):
        if not inspect.isclass(getattr(fedge, name)):
            groups["Classes"].remove(name)
            groups["Functions"].append(name)
    parts = []
    for title, found in groups.items():
        parts += [f"## {title}", *(describe(f"fedge.{name}", getattr(fedge, name)) for name in found)]
    return "\n\n".join(parts)


def theory() -> str:
    """Describe the functions of every theory, under the head of its file."""
    parts = []
    for module in sorted(m.name for m in pkgutil.iter_modules(fedge.theory.__path__)):
        home = import_module(f"fedge.theory.{module}")
        own = [(n, f) for n, f in vars(home).items() if inspect.isfunction(f) and f.__module__ == home.__name__]
        public = [describe(f"{home.__name__}.{n}", f) for n, f in own if not n.startswith("_") and f.__doc__]
        parts += [f"## `{home.__name__}`", f"```text\n{inspect.cleandoc(home.__doc__ or '')}\n```", *public]
    return "\n\n".join(parts)


def describe(name: str, what: Any) -> str:
    """Describe a function or a class by its signature, fields, members and docstring."""
    if not inspect.isclass(what):
        return _block("py:function", f"{name}{_signature(what)}", _doc(what))
    if issubclass(what, Exception):
        return _block("py:exception", name, f"Exit code {what.exit_code}. {_doc(what)}")
    return _block("py:class", name, "\n\n".join([_doc(what), *_fields(what), *_members(what)]))


def _fields(what: type) -> Iterator[str]:
    """List a dataclass' fields with the comments that stand beside them; keys of a run have a page of their own."""
    if not dataclasses.is_dataclass(what):
        return
    said = dict(re.findall(r"^    (\w+): [^#\n]*#\s*(.*)$", inspect.getsource(what), re.M))
    for field in dataclasses.fields(what):
        kind = _kind(str(field.type))
        yield _block("py:attribute", f"{field.name}\n:type: {kind}", said.get(field.name, ""), ":::")


def _members(what: type) -> Iterator[str]:
    for name, member in vars(what).items():
        if name.startswith("_") or name in HIDDEN or name in getattr(what, "__dataclass_fields__", ()):
            continue  # a field's default is no method of its own
        if isinstance(member, property) and member.fget.__doc__:
            yield _block("py:property", name, _doc(member.fget), ":::")
        elif isinstance(member, classmethod) and member.__func__.__doc__:
            yield _block(
                "py:method", f"{name}{_signature(member.__func__)}\n:classmethod:", _doc(member.__func__), ":::"
            )
        elif inspect.isfunction(member):
            yield _block("py:method", f"{name}{_signature(member)}", _doc(member), ":::")


def _signature(function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    kept = [p.replace(annotation=_kind(str(p.annotation)) if p.annotation is not p.empty else p.empty)
            for n, p in found.parameters.items() if n not in ("self", "cls")]  # fmt: skip
    back = "" if found.return_annotation is found.empty else f" -> {_kind(str(found.return_annotation))}"
    return re.sub(r"'([^']*)'", r"\1", str(inspect.Signature(kept))) + back


def _kind(annotation: str) -> str:
    """Shorten an annotation to what a reader needs."""
    return re.sub(r"\b(?:typing|collections\.abc|fedge(?:\.\w+)+|numpy)\.|<class '|'>", "", annotation)


def _doc(what: Any) -> str:
    if inspect.isclass(what) and what.__doc__ == inspect.getdoc(what.__mro__[1]):
        return ""
    text = inspect.getdoc(what) or ""
    return "" if text.startswith(f"{getattr(what, '__name__', '')}(") else text  # what a dataclass says of itself


def _block(directive: str, head: str, body: str, fence: str = "::::") -> str:
    first, *options = head.split("\n")
    return "\n".join([f"{fence}{{{directive}}} {first}", *options, "", body, fence])
