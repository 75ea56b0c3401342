"""A group of verbs that is imported when it is used: ``muvap`` starts without Dagster, and works where there is none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Stands for the group ``attribute`` of ``module`` until someone asks for its verbs."""

    def __init__(self, name: str, module: str, attribute: str, help: str) -> None:
        super().__init__(name, help=help)
        self._module, self._attribute = module, attribute

    def _group(self) -> Any:
        return getattr(import_module(self._module), self._attribute)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs' names."""
        names: list[str] = self._group().list_commands(ctx)
        return names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One verb."""
        command: click.Command | None = self._group().get_command(ctx, cmd_name)
        return command
