"""Words that the parser cannot read are answered with one sentence: what was given, what is allowed, what to do."""

from __future__ import annotations

import re
from typing import Any

from fedge.algorithms import ALGORITHMS
from fedge.cli import COMMANDS
from fedge.cli.common import importing
from fedge.errors import brief


def answer(problem: Any, words: list[str]) -> str:
    """Say what is wrong with the words of a command; `problem` is the parser's own complaint."""
    complaint = " ".join(problem.format_message().split())
    hint = f"`fedge {words[0]} --help`" if words[0] in COMMANDS else "`fedge --help`"
    if complaint.startswith("No such option"):
        return _no_option(problem, words, hint)
    if complaint.startswith("No such command"):
        return _no_command(complaint, words)
    if found := re.match(r"Missing \w+ '([^']+)'\.?(?: Choose from:? (.+))?", complaint):
        return f"{found[1]} is missing; " + (f"give one of: {found[2]}" if found[2] else f"{hint} says what it takes")
    if found := re.match(r"Option '([^']+)' requires", complaint):
        return f"{found[1]} needs a value after it; {hint} says which"
    if found := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.+)\)", complaint):
        return f"{brief(found[1])} is more than {words[0]} takes; leave it out"
    if (found := re.match(r"Invalid value for '([^']+)': (.*)", complaint)) and (allowed := _allowed(found[2])):
        return f"{found[1]} {brief(_given(found[1], words))} is not allowed; allowed: {allowed}"
    return complaint


def _no_option(problem: Any, words: list[str], hint: str) -> str:
    from fedge.experiment.other_names import KEYS_OF

    with importing():
        from fedge.experiment.config import all_fields
    refused = problem.option_name  # of a word with one dash, the parser names its first letter
    for word, value in zip(words, [*words[1:], "VALUE"], strict=True):
        option, equals, given = word.partition("=")
        name = option.lstrip("-")
        if option.startswith("-") and refused in (option, option[:2]):
            key = name.replace("-", "_")
            if keys := [one for one in KEYS_OF.get(key, [key]) if one in all_fields()]:
                written = " or ".join(f"{one}={brief(given if equals else value)}" for one in keys)
                return f"{option} is no option but a key; write {written}"
            own = [f"--{name}"] if f"--{name}" in _options(problem.ctx) else problem.possibilities
            return f"{option} is no option here; " + (f"did you mean {own[0]}?" if own else f"{hint} lists them")
    return " ".join(problem.format_message().split())


def _options(context: Any) -> list[str]:
    return [option for one in context.command.params for option in one.opts]


def _no_command(complaint: str, words: list[str]) -> str:
    found = re.match(r"No such command '(.*?)'\.?(?: Did you mean '?([\w-]+)'?)?", complaint)
    if found is None:
        return complaint
    group = words[0] if words[0] in COMMANDS else ""
    command, name = {"": "run", "cost": "cost run", "theory": "theory estimate"}.get(group), found[1].lower()
    if command and name in ALGORITHMS:
        return f"{name} is an algorithm; write fedge {command} {name}"
    meant = f"did you mean '{found[2]}'?" if found[2] else f"`{f'fedge {group}'.strip()} --help` lists them"
    return f"'{brief(found[1])}' is no command" + (f" of fedge {group}; " if group else "; ") + meant


def _given(option: str, words: list[str]) -> str:
    """Find the value that was given to an option."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        name, equals, given = word.partition("=")
        if name == option:
            return given if equals else value
    return ""


def _allowed(reason: str) -> str:
    """Say what is allowed, in the words of fedge, where the parser says why something is not."""
    if found := re.search(r"not one of (.+?)\.?$", reason):
        return found[1].replace("'", "")
    if found := re.search(r"(less|greater) than or equal to ([\d.]+)", reason):
        return f"a number {'≤' if found[1] == 'less' else '≥'} {found[2]}"
    if found := re.search(r"in the range ([\d.]+)<=x(?:<=([\d.]+))?", reason):
        return f"a number ≥ {found[1]}" + (f" and ≤ {found[2]}" if found[2] else "")
    return "an integer" if "integer" in reason else "a number" if re.search("number|float", reason) else ""
