"""The cluster's services, as systemd's own checker sees them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dagster_processes import ROOT
from skipping import skip_or_fail

CLUSTER = ROOT / "deploy" / "cluster"
UNITS = sorted((CLUSTER / "systemd").glob("*.service"))
INSTALLED = "/opt/muvap/.venv/bin/"


def analyze(*arguments):
    program = shutil.which("systemd-analyze")
    if program is None:
        skip_or_fail("systemd-analyze is not installed (Debian package systemd)")
    command = [program, *map(str, arguments), "--no-pager"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def settings(unit, name):
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_service_is_closed_but_for_what_it_needs(unit):
    rated = analyze("security", "--offline=true", unit)
    exposure = re.search(r"exposure level for .*: ([0-9.]+) ", rated.stdout)
    assert exposure is not None, rated.stderr
    assert float(exposure[1]) < 4
    assert settings(unit, "NoNewPrivileges") == ["yes"]
    assert settings(unit, "ProtectSystem") == ["strict"]
    assert settings(unit, "RequiresMountsFor") == ["/srv/muvap"]
    (writable,) = settings(unit, "ReadWritePaths")
    writes_data = "web" not in unit.name
    assert writable.split() == ["/var/lib/muvap", *(["/srv/muvap/data"] if writes_data else [])]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_service_is_one_that_systemd_understands_and_its_program_is_installed_with_the_package(unit, tmp_path):
    assert INSTALLED in unit.read_text()
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(INSTALLED, f"{Path(sys.executable).parent}/"))
    verified = analyze("verify", copy)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_page_starts_the_services_there_are_and_names_the_files_there_are():
    page = (ROOT / "docs" / "cluster.md").read_text()
    started = {
        re.sub(r"@.*", "@", name)
        for line in re.findall(r"systemctl enable --now (muvap[^#]*)", page)
        for name in line.split()
    }
    assert started == {unit.stem for unit in UNITS}
    named = set(re.findall(r"deploy/cluster/[\w./-]*\w", page))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
