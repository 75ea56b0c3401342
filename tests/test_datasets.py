"""datasets.yaml: what it says, and what a wrong entry is told."""

import pytest

from muvap_assets.asd.policy import OnViolation
from muvap_assets.datasets import load_datasets
from muvap_assets.errors import ConfigError
from resources.corpora import DEFAULT_DATASETS


def load(tmp_path, text):
    path = tmp_path / "datasets.yaml"
    path.write_text(text)
    return load_datasets(path)


def test_paths_are_meant_from_the_file_and_may_name_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("CORPORA", "/media/corpora")
    datasets = load(
        tmp_path,
        "corpora: {b: {kind: tsv, manifest: sub/train.tsv}, a: {kind: tsv, manifest: '${CORPORA}/x/val.tsv', dataset: x}}",
    )
    assert list(datasets.corpora) == ["a", "b"]
    assert datasets.corpus("b").source.manifest == tmp_path / "sub" / "train.tsv"
    assert str(datasets.corpus("a").source.manifest) == "/media/corpora/x/val.tsv"
    assert (datasets.corpus("b").dataset, datasets.corpus("a").dataset) == ("b", "x")


def test_options_reach_the_policy(tmp_path):
    corpus = load(
        tmp_path,
        "corpora: {a: {kind: tsv, manifest: a.tsv, on_violation: quarantine, max_silent_share: 0.5, shard_bytes: 2000000}}",
    ).corpus("a")
    assert (corpus.policy.on_violation, corpus.policy.max_silent_share) == (OnViolation.QUARANTINE, 0.5)
    assert corpus.shard_bytes == 2_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpora: {a: {kind: tsv}}", r"corpora\.a\.manifest: Field required"),
        ("corpora: {a: {kind: ava, split: train}}", r"corpora\.a\.root: Field required"),
        ("corpora: {a: {kind: wasd, root: x, split: a/b}}", r"corpora\.a\.split: .*found 'a/b'"),
        ("corpora: {a: {kind: ava, root: x, split: val, audo: y}}", r"corpora\.a\.audo: Extra inputs"),
        ("corpora: {a: {kind: ava, root: x, split: val, audio_kind: mp3}}", r"corpora\.a\.audio_kind: .*'clips'"),
        ("corpora: {a: {manifest: x}}", r"corpora\.a\.kind: Unable to extract tag"),
        ("corpora: {a: {kind: csv, manifest: a}}", r"corpora\.a\.kind: .*'tsv'.*found 'csv'"),
        ("corpora: {a: {kind: tsv, manifest: a, on_violaton: fail}}", r"corpora\.a\.on_violaton: Extra inputs"),
        (
            "corpora: {a: {kind: tsv, manifest: a, max_silent_share: 2}}",
            r"corpora\.a\.max_silent_share: found 2\.0, required is at least 0 and at most 1",
        ),
        (
            "corpora: {a: {kind: tsv, manifest: $NO_SUCH_VARIABLE/a}}",
            r"corpora\.a\.manifest: .*NO_SUCH_VARIABLE of the environment is not set",
        ),
        ("corpora: {'a|b': {kind: tsv, manifest: a}}", r"corpora key 'a\|b': not a usable name"),
        ("corpora: {'..': {kind: tsv, manifest: a}}", r"'\.\.': not a usable name"),
        ("corpora: {a: {kind: tsv, manifest: a}, a: {kind: tsv, manifest: b}}", r"keys \['a'\] occur twice"),
        ("corpora: [", "cannot be read as YAML"),
        ("corpus: {}", "corpus: Extra inputs"),
        ("just text", "valid dictionary"),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_the_key(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


@pytest.mark.parametrize("hours", [".inf", ".nan", "1.0e+12", "0.01", "-1"])
@pytest.mark.parametrize(("section", "kind"), [("corpora", "kind: tsv, "), ("ref2va", "")])
def test_an_age_that_dagster_has_no_window_for_is_refused_by_its_key(tmp_path, section, kind, hours):
    with pytest.raises(ConfigError, match=rf"{section}\.a\.max_age_hours: Input should be"):
        load(tmp_path, f"{section}: {{a: {{{kind}manifest: x, max_age_hours: {hours}}}}}")


def test_several_wrong_entries_are_told_together(tmp_path):
    with pytest.raises(ConfigError, match=r"3 wrong entries"):
        load(tmp_path, "corpora: {a: {kind: tsv}, b: {manifest: x}, c: {kind: tsv, manifest: x, extra: 1}}")


def test_every_path_of_a_loader_corpus_is_meant_from_the_file_or_has_its_published_place(tmp_path):
    text = "corpora: {a: {kind: ava, root: ava, split: val, audio: ../sound, loader: my.csv}}"
    source = load(tmp_path, text).corpus("a").source
    assert source.folder == tmp_path / "ava"
    assert source.loader_file == tmp_path / "my.csv"
    assert source.original_file == tmp_path / "ava" / "csv" / "val_orig.csv"
    assert source.faces_folder == tmp_path / "ava" / "clips_videos" / "val"
    assert source.audio_folder == tmp_path.parent / "sound"


def test_splits_of_one_dataset_or_of_one_folder_are_siblings(tmp_path):
    datasets = load(
        tmp_path,
        """
        corpora:
          ava_train: {kind: ava, root: ava, split: train}
          ava_val: {kind: ava, root: ava, split: val}
          elsewhere: {kind: tsv, manifest: moved/test.tsv, dataset: mine}
          here: {kind: tsv, manifest: x/train.tsv, dataset: mine}
          wasd: {kind: wasd, root: wasd, split: val}
        """,
    )
    siblings = {name: datasets.corpus(name).siblings for name in datasets.corpora}
    assert siblings == {
        "ava_train": ("ava_val",),
        "ava_val": ("ava_train",),
        "elsewhere": ("here",),
        "here": ("elsewhere",),
        "wasd": (),
    }


def test_limits_of_references_are_options_like_the_others(tmp_path):
    names = ("max_images", "max_videos", "max_audios", "max_references")
    own = ", ".join(f"{name}: {number}" for number, name in enumerate(names))
    datasets = load(tmp_path, f"ref2va: {{plain: {{manifest: x.jsonl}}, own: {{manifest: x.jsonl, {own}}}}}")
    options = {name: datasets.ref2va_dataset(name).options for name in datasets.ref2va}
    limits = {key: tuple(getattr(found, name) for name in names) for key, found in options.items()}
    assert limits == {"plain": (9, 3, 3, 12), "own": (0, 1, 2, 3)}
    with pytest.raises(ConfigError, match=r"ref2va\.clips\.max_images: found -1, required is at least 0"):
        load(tmp_path, "ref2va: {clips: {manifest: x.jsonl, max_images: -1}}")


def test_a_seed_no_row_can_store_is_refused_with_its_key(tmp_path):
    with pytest.raises(ConfigError, match=r"ref2va\.clips\.reference_noise_seed: found 9223372036854775808, .*int64"):
        load(tmp_path, f"ref2va: {{clips: {{manifest: x.jsonl, reference_noise_seed: {2**63}}}}}")


def test_an_unknown_corpus_is_told_which_there_are(tmp_path):
    with pytest.raises(ConfigError, match=r"corpus 'c': not in datasets.yaml, required is one of \['a'\]"):
        load(tmp_path, "corpora: {a: {kind: tsv, manifest: x}}").corpus("c")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="MUVAP_DATASETS"):
        load_datasets(tmp_path / "none.yaml")


def test_an_empty_file_is_a_platform_without_corpora(tmp_path):
    assert load(tmp_path, "").corpora == {}


def test_the_default_file_is_valid_and_names_the_demo():
    assert set(load_datasets(DEFAULT_DATASETS).corpora) == {"demo_train", "demo_val"}


@pytest.mark.parametrize(
    "text",
    [
        "nightly_cron: 2001-99-99",
        "nightly_cron: !!int x",
        "nightly_cron: !!bool x",
        "nightly_cron: !!timestamp x",
        "corpora: !!map [1]",
        "corpora: " + "[" * 3000,
        "corpora: {a: 1, a: 2}",
        "corpora: 0" + "9" * 5000,
    ],
    ids=lambda text: text[:40],
)
def test_whatever_yaml_stumbles_over_is_told_with_the_file(tmp_path, text):
    path = tmp_path / "datasets.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"datasets\.yaml: (cannot be read as YAML|\d+ wrong entries)"):
        load_datasets(path)
