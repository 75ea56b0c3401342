"""The paths of a command line: ``~`` and ``$NAME`` are read as everywhere else, also where the shell left them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from muvap_assets.errors import ConfigError
from muvap_assets.storage.paths import data_root_of, path_of


class PathArgument(click.Path):
    """A path that is expanded, as :class:`pathlib.Path`."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, if it is there and may be."""
        try:
            path = self._expanded(value, param, ctx) if isinstance(value, str) else value
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
        return super().convert(path, param, ctx)

    def _expanded(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return path_of(text, _where(param, ctx))


class DataRoot(PathArgument):
    """A data root: one that comes from the environment is absolute."""

    def _expanded(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return data_root_of(text) if _is_variable(param, ctx) else path_of(text, _where(param, ctx))


def _is_variable(param: click.Parameter | None, ctx: click.Context | None) -> bool:
    if param is None or ctx is None or param.name is None:
        return False
    return ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT


def _where(param: click.Parameter | None, ctx: click.Context | None) -> str:
    if param is None:
        return "path"
    if isinstance(param.envvar, str) and _is_variable(param, ctx):
        return param.envvar
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name


FILE = PathArgument(exists=True, dir_okay=False)
FOLDER = PathArgument(exists=True, file_okay=False)
NEW_FILE = PathArgument(dir_okay=False)
NEW_FOLDER = PathArgument(file_okay=False)
