"""The arrows between layers hold: a folder tells what a module may know."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "muvap_assets"
HEAVY = {"torch", "diffusers", "transformers", "av", "cv2", "matplotlib"}
SHELL = {"muvap_assets.definitions", "muvap_assets.defs", "resources"}


def modules():
    for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / "resources").rglob("*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path, at_load_only=False):
    """Every module a file imports; with ``at_load_only`` those that importing it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = (
        {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
        if at_load_only
        else set()
    )
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name, packages):
    return any(name == package or name.startswith(package + ".") for package in packages)


MODULES = dict(modules())


@pytest.mark.parametrize("name", MODULES)
def test_only_the_shell_knows_dagster(name):
    knows = [used for used in imports(MODULES[name]) if within(used, {"dagster", "dagster_webserver", "resources"})]
    if not within(name, SHELL):
        assert knows == []


@pytest.mark.parametrize("name", MODULES)
def test_the_domain_knows_nothing_of_the_shell(name):
    if not within(name, SHELL):
        assert [used for used in imports(MODULES[name]) if within(used, SHELL)] == []


def test_assets_and_resources_meet_only_in_definitions():
    for name, path in MODULES.items():
        if within(name, {"muvap_assets.defs"}):
            assert not [used for used in imports(path) if within(used, {"resources"})], name
        if within(name, {"resources"}):
            assert not [used for used in imports(path) if within(used, {"muvap_assets.defs"})], name
    met = set(imports(MODULES["muvap_assets.definitions"]))
    assert any(within(used, {"resources"}) for used in met)
    assert any(within(used, {"muvap_assets.defs"}) for used in met)


def test_the_two_lines_do_not_know_each_other():
    for name, path in MODULES.items():
        for mine, other in (("muvap_assets.asd", "muvap_assets.ref2va"), ("muvap_assets.ref2va", "muvap_assets.asd")):
            if within(name, {mine}):
                assert not [used for used in imports(path) if within(used, {other})], name


def test_the_code_location_loads_without_a_heavy_library():
    script = "import sys, muvap_assets.definitions; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert HEAVY.isdisjoint(loaded)
    assert "dagster" in loaded


def test_the_code_location_loads_in_under_three_cpu_seconds():
    script = "import resource as r, muvap_assets.definitions; print(sum(r.getrusage(r.RUSAGE_SELF)[:2]))"
    command = [sys.executable, "-c", script]
    seconds = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(2)]
    assert min(seconds) < 3


def test_the_asd_line_runs_without_torch_or_dagster():
    script = (
        "import sys, muvap_assets.cli.main, muvap_assets.asd.line; print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert {"torch", "dagster", "cv2", "av"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_is_named_for_having_no_subject(name):
    assert not {"utils", "util", "helpers", "helper", "common", "misc"} & set(name.split("."))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name):
    source = MODULES[name].read_text(encoding="utf-8")
    assert not source.strip() or ast.get_docstring(ast.parse(source))
