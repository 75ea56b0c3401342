"""The maintenance job: what it reports, and that its options reach the domain."""

import dagster as dg
import pytest
from version_roots import names, publish_text

from muvap_assets.definitions import build_defs
from muvap_assets.defs import maintenance
from muvap_assets.layout import Layout


@pytest.fixture
def artifact(tmp_path):
    return Layout(tmp_path / "root").artifact("asd", "thing", "part")


def run(artifact, **config):
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            maintenance.build_assets(keep_versions=1),
            resources={"layout": Layout(artifact.root)},
            run_config={"ops": {"ops__maintenance": {"config": config}}},
            instance=instance,
        )
        [event] = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_the_job_reports_what_it_removed_and_freed(artifact):
    versions = [publish_text(artifact, content) for content in "abc"]
    metadata = run(artifact, grace_hours=0.0, dry_run=True)
    assert (metadata["version_removed"], metadata["freed_bytes"], metadata["dry_run"]) == (1, 1, "True")
    assert run(artifact)["version_removed"] == 0
    metadata = run(artifact, grace_hours=0.0)
    assert metadata["removed"].records[0].data["name"] == f"asd/thing [part] {versions[0]}"
    assert names(artifact.folder) == {*versions[1:], "current"}


def test_the_code_location_has_the_job():
    assert build_defs().resolve_job_def("maintenance")
