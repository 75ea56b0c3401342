"""The command line of declared options: each option of a record becomes one flag with its default, range and help."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from muvap_assets.options import Declared, is_choice, options_of
from muvap_assets.text_lines import line

F = TypeVar("F", bound=Callable[..., Any])


def option(name: str, annotation: Any, default: Any, of: str = "") -> Callable[[F], F]:
    """The flag of an option that is declared by an annotation alone; ``of`` says in its help what it is for.

    Raises:
        TypeError: the annotation declares none.
    """
    declared = Declared.of(name, annotation, default)
    if declared is None:
        raise TypeError(f"{name}: {annotation} declares no option")
    return _flag(declared, of)


def _flag(declared: Declared, of: str) -> Callable[[F], F]:
    name, kind, stated = "--" + declared.name.replace("_", "-"), declared.kind, declared.option
    shown = f"{of}: {stated.help}" if of else stated.help
    if kind is bool:
        return click.option(name, is_flag=True, help=shown)

    def checked(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if wrong := stated.wrong(value, kind):
            raise click.BadParameter(wrong, context, parameter)
        return value if value is None else kind(value)

    settings: dict[str, Any] = {"type": str if is_choice(kind) else kind, "callback": checked, "help": shown}
    default = str(declared.default) if is_choice(kind) else declared.default
    if stated.flag is not None:
        return click.option(f"--{stated.flag}", declared.name, flag_value=stated.flag, default=default, **settings)
    if is_choice(kind):
        settings["metavar"] = f"[{'|'.join(kind)}]"
    if stated.range:
        settings["help"] += f" {stated.range[0].upper()}{stated.range[1:]}."
    return click.option(name, default=default, show_default=default is not None, **settings)


def record_options(record: type, but: Collection[str] = (), of: str = "") -> Callable[[F], F]:
    """The flags of every option of a record, in its order, but those named; ``of`` says in the help what they are for."""
    chosen = [_flag(each, of) for each in options_of(record) if each.name not in but]

    def decorate(command: F) -> F:
        for each in reversed(chosen):
            command = each(command)
        return command

    return decorate


def refuse_given(context: click.Context, names: Collection[str], found: str, required: str) -> None:
    """Refuse options that were given and mean nothing for what the command is about.

    Raises:
        UsageError: some of ``names`` were given; each is named.
    """
    given = [
        parameter.opts[-1]
        for parameter in context.command.params
        if parameter.name in names and context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)}: given for {line(found)}; required: {required}. Leave them out.", context
        )
