"""A group whose verbs are imported when they are used: ``muvap`` starts without Dagster, and works where there is none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Stands for the group ``attribute`` of ``module`` until someone asks for its verbs; verbs of its own need no module."""

    def __init__(self, name: str, module: str, attribute: str, help: str) -> None:
        super().__init__(name, help=help)
        self._module, self._attribute = module, attribute

    def _group(self) -> Any:
        return getattr(import_module(self._module), self._attribute)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs' names."""
        return sorted({*super().list_commands(ctx), *self._group().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One verb."""
        own = super().get_command(ctx, cmd_name)
        command: click.Command | None = own or self._group().get_command(ctx, cmd_name)
        return command
