"""The paths of a command line: ``~`` and ``$NAME`` are read as everywhere else, also where the shell left them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from muvap_assets.errors import ConfigError
from muvap_assets.storage.paths import DATA_ROOT_VARIABLE, data_root_of, path_of


class PathArgument(click.Path):
    """A path that is expanded, as :class:`pathlib.Path`; the data root of the environment has to be absolute."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, if it may be and is there where it has to be."""
        if isinstance(value, str):
            where = _where(param, ctx)
            try:
                value = data_root_of(value) if where == DATA_ROOT_VARIABLE else path_of(value, where)
            except ConfigError as error:
                raise click.ClickException(str(error)) from error
        return super().convert(value, param, ctx)


def _where(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """What holds the path, as a message names it: the variable, the option or the argument."""
    if param is None or ctx is None or param.name is None:
        return "path"
    if isinstance(param.envvar, str) and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return param.envvar
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name


FILE = PathArgument(exists=True, dir_okay=False)
FOLDER = PathArgument(exists=True, file_okay=False)
NEW_FILE = PathArgument(dir_okay=False)
NEW_FOLDER = PathArgument(file_okay=False)
