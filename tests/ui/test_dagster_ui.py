"""The Dagster UI of the demo in a real browser: what an operator sees of lines, checks, rejections, tables and runs."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import dagster as dg
import pytest
from dagster_processes import ROOT, process, until
from demo_site import SERVED_LATER, environment
from playwright.sync_api import expect

from muvap_assets.codes import Code
from muvap_assets.demo.corpus import TRAIN
from muvap_assets.demo.failing import CORPORA, DATASETS

pytestmark = pytest.mark.ui
LOCATION = "muvap_assets.definitions"
expect.set_options(timeout=60_000)


@dataclass(frozen=True)
class Site:
    """A webserver on the demo's home."""

    folder: Path
    url: str

    def ask(self, query, **variables):
        """The server's answer to a GraphQL query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        with urlopen(Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"}), timeout=60) as answer:
            return json.load(answer)["data"]

    def answers(self):
        try:
            return bool(self.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"))
        except OSError:
            return False

    def open(self, page, asset, **query):
        page.goto(f"{self.url}/assets/{asset}?{'&'.join(f'{name}={value}' for name, value in query.items())}")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("demo_site.py")), str(folder)]
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    variables = {**os.environ, **paths, **environment(folder)}
    made = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-4000:]
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    served = Site(folder, f"http://127.0.0.1:{port}")
    serve = ["dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-m", LOCATION]
    with process(serve, folder / "webserver.log", **environment(folder)):
        until(served.answers, 120, "the webserver's first answer")
        yield served


@pytest.fixture
def evaluations(site):
    """The last evaluation of every check in every partition, from the records: {(asset, check): {partition: passed}}."""
    latest = {}
    with dg.DagsterInstance.from_config(str(site.folder / "home")) as instance:
        for run in reversed(instance.get_runs()):
            for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
                found = entry.get_dagster_event().asset_check_evaluation_data
                key = (found.asset_key.to_user_string(), found.check_name)
                latest.setdefault(key, {})[found.partition] = found.passed
    return latest


@pytest.mark.parametrize(
    ("group", "assets"),
    [
        ("asd", ["source", "manifest", "loudness_index", "packed_shards"]),
        ("ref2va", ["source", "manifest", "encoded_latents", "parquet_cache_index"]),
        ("ops", ["maintenance"]),
    ],
)
def test_the_lineage_shows_every_asset_and_how_many_of_its_checks_pass(
    site, page, artifacts, evaluations, group, assets
):
    page.goto(f"{site.url}/locations/{LOCATION}/asset-groups/{group}")
    nodes = page.locator("foreignObject")
    for asset in assets:
        node = nodes.filter(has_text=asset)
        expect(node).to_have_count(1)
        mine = {name: found for (key, name), found in evaluations.items() if key == f"{group}/{asset}"}
        if mine:
            passed = sum(all(found.values()) for found in mine.values())
            expect(node).to_contain_text(f"{passed} / {len(mine)} Passed")
    page.screenshot(path=artifacts / f"dagster-lineage-{group}.png")


def open_check(site, page, asset, check, partition):
    site.open(page, asset, view="checks", checkDetail=check)
    page.get_by_role("tab", name="Partitions", exact=True).nth(1).click()
    choose(page, partition)


def choose(page, partition):
    """Choose a partition in the list of a check's page, and wait for what is known of it."""
    page.get_by_text(partition, exact=True).first.click()
    expect(page.get_by_text(partition, exact=True)).not_to_have_count(
        2
    )  # the list and its measure; then the heading too
    expect(page.get_by_text("Latest execution")).to_be_visible()


def numbers_of(page):
    """The metadata entries of a page that are plain values."""
    rows = page.locator("tr:has(> td:nth-child(2):last-child)").all()
    cells = [row.locator("> td").all_inner_texts() for row in rows]
    return {name.strip(): value.strip() for name, value in cells}


def table_of(page, name):
    """A table among the metadata entries: a record a row."""
    entry = page.locator("tr", has=page.locator("> td:first-child", has_text=re.compile(f"^{name}$"))).last
    heads = entry.locator("th").all_inner_texts()
    rows = entry.locator("tbody tr").all()
    return [dict(zip(heads, row.locator("td").all_inner_texts(), strict=True)) for row in rows]


def test_a_check_shows_its_numbers(site, page, artifacts):
    open_check(site, page, "asd/manifest", "rows_valid", "demo_train")
    expect(page.get_by_text("accepted", exact=True)).to_be_visible()
    rows = str(len(TRAIN))
    assert numbers_of(page) == {"accepted": rows, "errors": "0", "rejected": "0", "rows": rows, "warnings": "0"}
    page.screenshot(path=artifacts / "dagster-check-passed.png")


@pytest.mark.parametrize(
    ("asset", "codes"),
    [("asd/manifest", CORPORA), ("ref2va/manifest", DATASETS)],
    ids=["asd", "ref2va"],
)
def test_a_failed_check_names_each_failure_and_what_to_do(site, page, artifacts, asset, codes):
    line, first = asset.partition("/")[0], True
    page.set_viewport_size({"width": 2200, "height": 1500})  # so that the picture kept of it holds the whole table
    for partition, expected in codes.items():
        check = "rejected_rows" if partition == "quarantined" else "rows_valid"
        if first or partition == "quarantined":
            open_check(site, page, asset, check, partition)
        else:
            choose(page, partition)
        first = False
        expect(page.get_by_role("cell", name=str(expected[0]), exact=True).last).to_be_visible()
        records = table_of(page, "findings")
        assert {record["code"] for record in records} == set(map(str, expected))
        for record in records:
            assert record["sample_id"] in ("", record["code"], "good"), record
            assert record["found"] and record["required"] and record["hint"], record
        assert numbers_of(page)["findings_total"] == str(len(records))
        page.screenshot(path=artifacts / f"dagster-rejected-{line}-{partition}.png")


def test_a_hint_can_be_scrolled_to(site, page, artifacts):
    open_check(site, page, "asd/manifest", "rows_valid", "failing_text")
    hint = page.get_by_role("cell", name=Code.PATH_INVALID.hint, exact=True)
    hint.scroll_into_view_if_needed()
    box = hint.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= page.viewport_size["width"]
    page.screenshot(path=artifacts / "dagster-hint.png")


def test_the_buckets_of_a_dataset_are_a_table(site, page, artifacts):
    site.open(page, "ref2va/manifest", view="events", partition="demo_clips")
    expect(page.get_by_role("cell", name="buckets", exact=True)).to_be_visible()
    buckets = {record["bucket"]: record for record in table_of(page, "buckets")}
    assert {name: (record["rows"], record["frames"]) for name, record in buckets.items()} == {
        "bucket=64x128-39f": ("1", "39"),
        "bucket=128x64-22f": ("3", "66"),
    }
    page.screenshot(path=artifacts / "dagster-buckets.png")


def pictures_of(site, asset, partition):
    """The names of the pictures that the record of the last materialization holds."""
    with dg.DagsterInstance.from_config(str(site.folder / "home")) as instance:
        filters = dg.AssetRecordsFilter(dg.AssetKey(asset.split("/")), asset_partitions=[partition])
        (record,) = instance.fetch_materializations(filters, limit=1).records
    return [name for name in record.asset_materialization.metadata if name.startswith("picture_")]


@pytest.mark.parametrize(
    ("asset", "partition"),
    [
        ("asd/manifest", "demo_train"),
        ("asd/loudness_index", "demo_train"),
        ("asd/packed_shards", "demo_train"),
        ("ref2va/encoded_latents", "demo_clips|000"),
        ("ref2va/parquet_cache_index", "demo_clips"),
    ],
)
def test_the_pictures_of_an_asset_open(site, page, artifacts, asset, partition):
    names = pictures_of(site, asset, partition)
    assert names
    site.open(page, asset, view="events", partition=quote(partition))
    for name in names:
        entry = page.locator("tr", has=page.get_by_role("cell", name=name, exact=True)).last
        entry.get_by_text("Show Markdown").click()
        dialog = page.get_by_role("dialog")
        image = dialog.locator("img")
        image.wait_for()
        size = image.evaluate("(image) => image.decode().then(() => [image.naturalWidth, image.naturalHeight])")
        assert size[0] > 100 and size[1] > 50
        assert image.get_attribute("alt")
        picture = artifacts / f"dagster-{asset.replace('/', '-')}-{name}.png"
        page.screenshot(path=picture, animations="disabled")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


@pytest.fixture
def daemon(site):
    """The daemon, which takes launched runs from the queue; automation is stopped, so that nothing else runs."""
    query = "{ repositoriesOrError { ... on RepositoryConnection { nodes { sensors { id } } } } }"
    for repository in site.ask(query)["repositoriesOrError"]["nodes"]:
        for sensor in repository["sensors"]:
            stop = "mutation($id: String!) { stopSensor(id: $id) { __typename } }"
            assert site.ask(stop, id=sensor["id"])["stopSensor"]["__typename"] == "StopSensorMutationResult"
    with process(["dagster._daemon", "run", "-m", LOCATION], site.folder / "daemon.log", **environment(site.folder)):
        yield


def test_a_partition_is_materialized_by_clicking(site, page, artifacts, daemon):
    site.open(page, "asd/manifest", view="partitions")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Missing", exact=True).click()
    expect(dialog.get_by_text(SERVED_LATER, exact=True).first).to_be_visible()
    page.screenshot(path=artifacts / "dagster-launch.png")
    dialog.get_by_role("button", name="Launch 1 run").click()
    page.get_by_role("button", name="View", exact=True).or_(page.get_by_role("link", name="View", exact=True)).click()
    page.wait_for_url("**/runs/*")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=180_000)
    page.screenshot(path=artifacts / "dagster-run.png")
    site.open(page, "asd/manifest", view="events", partition=SERVED_LATER)
    expect(page.get_by_text("materialized in run")).to_be_visible()
    assert (site.folder / "data" / "asd" / "manifest" / SERVED_LATER / "current" / "manifest.parquet").is_file()
