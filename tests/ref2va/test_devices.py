"""Where tensors were made is recorded beside a version, and a version made elsewhere from the same inputs is recognized as one."""

import json
import shutil

import pytest
from click.testing import CliRunner
from encoder_rows import FakeEncoder

from muvap_assets.cli.main import main
from muvap_assets.demo.ref2va import packed_rows, write_demo_datasets
from muvap_assets.layout import Layout
from muvap_assets.publish import content_version
from muvap_assets.ref2va import line
from muvap_assets.ref2va.contract import Dataset, DatasetOptions
from muvap_assets.ref2va.devices import read_devices
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.publication import export_dataset
from muvap_assets.version_diff import diff_versions
from muvap_assets.versions import require_whole


class OnDevice(FakeEncoder):
    """Rounds the sound of targets in its own way."""

    def __init__(self, device, apart=0.0):
        super().__init__()
        self.device, self.apart = device, apart

    def encode(self, stage, *arguments):
        tensors = super().encode(stage, *arguments)
        if stage is Stage.TARGET_AUDIO:
            tensors["audio_latent"] = tensors["audio_latent"] + type(tensors["audio_latent"].flat[0])(self.apart)
        return tensors


class Site:
    """Two rows, encoded in as many data roots and on as many devices as asked for."""

    def __init__(self, folder, spec, monkeypatch):
        self.folder, self.spec, self.monkeypatch = folder, spec, monkeypatch
        write_demo_datasets(folder / "src")
        self.rows = packed_rows()[:2]

    def publish(self, root, encoder):
        """The versions of the part and of the dataset."""
        manifest = self.folder / "src/clips.jsonl"
        manifest.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        dataset = Dataset(name="clips", manifest=manifest, options=DatasetOptions(width=128, height=64, num_frames=22))
        layout = Layout(self.folder / root)
        self.monkeypatch.setattr(line, "open_h3", lambda layout, spec: encoder)
        assert line.make_manifest(layout, dataset, self.spec).published
        encoded = line.make_encoded_latents(layout, dataset, 0, self.spec)
        return encoded.published.path, line.make_parquet_cache_index(layout, dataset).published.path


@pytest.fixture
def site(tmp_path, tiny_spec, monkeypatch):
    return Site(tmp_path, tiny_spec, monkeypatch)


def test_the_device_is_named_beside_the_version_and_is_no_part_of_it(site):
    for made, same in zip(site.publish("a", OnDevice("x")), site.publish("b", OnDevice("y")), strict=True):
        assert made.name == same.name
        assert (read_devices(made), read_devices(same)) == ({"x": 2}, {"y": 2})
        assert json.loads((made / "device.json").read_text()) == {"rows_by_device": {"x": 2}}
        assert content_version(made) != made.name  # device.json would count
    export_dataset(Layout(site.folder / "b"), made, site.folder / "exported")
    assert read_devices(site.folder / "exported") == {"x": 2}


def test_rows_taken_from_the_store_keep_the_devices_they_were_made_on(site):
    site.publish("a", OnDevice("x"))
    site.rows[0]["caption"] += " Again."
    for version in site.publish("a", OnDevice("y")):
        assert read_devices(version) == {"x": 2, "y": 1}  # of the row with another caption the text alone is new


def test_a_version_of_another_device_is_told_from_one_of_other_inputs(site):
    before, after = site.publish("a", OnDevice("x")), site.publish("b", OnDevice("y", apart=0.25))
    for one, other in zip(before, after, strict=True):
        assert one.name != other.name
        found = diff_versions(one, other)
        assert (found.added, found.removed, found.changed, found.unchanged) == ((), (), {}, 0)
        assert {difference.largest for difference in found.recomputed.values()} == {0.25}
        shown = CliRunner().invoke(main, ["diff", str(one), str(other), "--data-root", str(site.folder)])
        text = "2 rows: same inputs, another device (x -> y); largest difference 0.25 (audio_latent)"
        assert shown.output == f"{text}\n0 added, 0 removed, 0 changed, 0 unchanged\n"
    shown = CliRunner().invoke(main, ["diff", str(one), str(other), "--json", "--data-root", str(site.folder)])
    assert json.loads(shown.output)["recomputed"] == {
        row["id"]: {"largest": 0.25, "tensor": "audio_latent"} for row in site.rows
    }
    site.rows[0]["caption"] += " Again."
    changed = diff_versions(before[1], site.publish("b", OnDevice("y", apart=0.25))[1])
    assert (list(changed.changed), list(changed.recomputed)) == ([site.rows[0]["id"]], [site.rows[1]["id"]])


def test_without_the_tensors_of_one_version_the_difference_is_unknown(site):
    before, after = site.publish("a", OnDevice("x"))[0], site.publish("b", OnDevice("x", apart=0.25))[0]
    shutil.rmtree(site.folder / "a/row_store")
    found = diff_versions(before, after)
    assert set(found.recomputed.values()) == {None}
    assert "same inputs, the same device (x); largest difference unknown" in found.recomputed_text


def test_a_version_of_before_devices_were_recorded_is_whole(site):
    for version in site.publish("a", OnDevice("x")):
        (version / "device.json").unlink()
        (artifact,) = [
            each
            for each in (
                Layout(site.folder / "a").ref2va_encoded_latents("clips", 0),
                Layout(site.folder / "a").ref2va_parquet_cache_index("clips"),
            )
            if each.folder == version.parent
        ]
        require_whole(artifact, version.name)
        assert read_devices(version) == {}


def test_the_encoder_names_its_device_and_instruction_set(tiny_encoder):
    import platform

    import torch

    assert tiny_encoder.device == f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def test_nothing_is_said_about_devices_that_were_not_recorded(site):
    before, after = site.publish("a", OnDevice("x"))[1], site.publish("b", OnDevice("x", apart=0.25))[1]
    (before / "device.json").unlink()
    assert "devices unknown (not recorded -> x)" in diff_versions(before, after).recomputed_text
    (after / "device.json").unlink()
    assert "the same device" not in diff_versions(before, after).recomputed_text
