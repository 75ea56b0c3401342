"""Failures are told in one line, to the log and to a webhook, against a real HTTP server."""

import base64
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import unquote

import dagster as dg
import pytest

from muvap_assets.alerts import Alert, send
from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd


class Webhook(HTTPServer):
    """Keeps what it is sent; answers with ``status``, or not at all where that is ``None``."""

    def __init__(self):
        self.received, self.status = [], 200
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/hooks/secret"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(json.loads(body))
        self.server.authorized = self.headers["Authorization"]
        if self.server.status is None:
            self.close_connection = True
            return
        self.send_response(self.server.status)
        if self.server.status in range(300, 400):
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def webhook(monkeypatch):
    with Webhook() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("MUVAP_ALERT_WEBHOOK", server.address)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def site(corpus, tmp_path):
    """A code location over a corpus with one label too many, strict and in quarantine."""
    corpus.row("a")
    corpus.row("bad", labels=str([0] * 26))
    corpus.write()
    entry = {"kind": "tsv", "manifest": str(corpus.root / "train.tsv")}
    lenient = {**entry, "on_violation": "quarantine", "max_rejected_share": 0.5}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {"strict": entry, "lenient": lenient}}))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Site(build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=tmp_path / "data"), instance)


class Site:
    """Runs, and what the sensors tell of them."""

    def __init__(self, defs, instance):
        self.defs, self.instance = defs, instance

    def run(self, partition):
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[asd.MANIFEST], partition_key=partition, instance=self.instance, raise_on_error=False
        )

    def tell(self, sensor_name, result):
        ended = (dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_SUCCESS)
        (end,) = [event for event in result.all_events if event.event_type in ended]
        context = dg.build_run_status_sensor_context(sensor_name, end, self.instance, result.dagster_run)
        sensor = self.defs.get_repository_def().get_sensor_def(sensor_name)
        sensor(context.for_run_failure() if end.event_type is dg.DagsterEventType.RUN_FAILURE else context)


def test_a_check_that_warns_is_told_with_its_partition_and_first_finding(site, webhook):
    site.tell("alert_failed_checks", site.run("lenient"))
    (told,) = webhook.received
    assert told["text"].startswith("asd/manifest [lenient]: WARN: rejected_rows failed: train.tsv row 3 (bad): ")
    assert "labels has 26 entries, faces has 25 frames" in told["text"]
    assert "\n" not in told["text"]
    assert (told["kind"], told["asset"], told["partition"]) == ("check_failure", "asd/manifest", "lenient")


def test_a_failed_gate_is_told_once_with_its_checks_in_one_line(site, webhook):
    result = site.run("strict")
    site.tell("alert_failed_runs", result)
    (told,) = webhook.received
    assert told["text"].startswith(f"asd/manifest [strict]: run {result.run_id} failed: ")
    assert "failed rows_valid, labels_match_faces" in told["text"]
    assert "\n" not in told["text"]
    assert (told["kind"], told["run_id"]) == ("run_failure", result.run_id)


@pytest.mark.parametrize("status", [500, 404, 301, 302, 303, 307, 308, None])
def test_a_webhook_that_does_not_take_it_is_told_of_without_its_secret(webhook, status):
    webhook.status = status
    told = send(Alert(kind="test", text="x"))
    assert told.startswith(f"MUVAP_ALERT_WEBHOOK: 127.0.0.1:{webhook.server_port} did not take the alert")
    assert "secret" not in told


def test_without_an_address_nothing_is_sent_and_a_wrong_one_is_named(monkeypatch):
    monkeypatch.delenv("MUVAP_ALERT_WEBHOOK", raising=False)
    assert send(Alert(kind="test", text="x")) is None
    assert "required: an http or https address" in send(Alert(kind="test", text="x"), "file:///etc/passwd")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:80a/secret", "127.0.0.1:80a did not take the alert (InvalidURL)"),
        ("http://[::1/secret", "the address did not take the alert (ValueError)"),
        ("http://127.0.0.1/sec ret", "127.0.0.1 did not take the alert (InvalidURL)"),
        ("http://127.0.0.1/secr\xe9t", "127.0.0.1 did not take the alert (UnicodeEncodeError)"),
        ("http://me:secret@127.0.0.1:9/", "127.0.0.1:9 did not take the alert"),
        ("http://me:secret/x@127.0.0.1:9/", "the address did not take the alert (InvalidURL)"),
        ("http://me:9/secret@127.0.0.1:9/", "the address did not take the alert"),
        (
            "secret-token@chat.example/hooks/x",
            "no http:// or https:// at its beginning; required: an http or https address",
        ),
        ("secret", "no http:// or https:// at its beginning; required: an http or https address"),
        ("secret:x//127.0.0.1", "no http:// or https:// at its beginning; required: an http or https address"),
        (" http://127.0.0.1/secret", "no http:// or https:// at its beginning"),
    ],
)
def test_an_address_that_is_none_is_told_of_without_its_secret(address, reason):
    told = send(Alert(kind="test", text="x"), address)
    assert reason in told
    assert "sec" not in told


def test_a_port_that_speaks_something_else_is_told_of():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            with server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(b"SSH-2.0-none\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        told = send(Alert(kind="test", text="x"), f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert "did not take the alert (BadStatusLine)" in told


@pytest.mark.parametrize("user", ["me:se%63ret", "me:p%40ss%2F:w\xf6rd", "me", "me:a@b"])
def test_a_user_and_a_password_in_the_address_are_sent_as_such_and_not_told(webhook, user):
    place = webhook.address.removeprefix("http://")
    assert send(Alert(kind="test", text="x"), f"http://{user}@{place}") is None
    kind, _, sent = webhook.authorized.partition(" ")
    assert (kind, base64.b64decode(sent).decode()) == ("Basic", unquote(user) + (":" if user == "me" else ""))
    webhook.status = 500
    told = send(Alert(kind="test", text="x"), f"http://{user}@{place}")
    assert told.startswith(f"MUVAP_ALERT_WEBHOOK: 127.0.0.1:{webhook.server_port} did not take the alert")


def test_without_a_user_nothing_is_said_of_one(webhook):
    assert send(Alert(kind="test", text="x")) is None
    assert webhook.authorized is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!channel> & <https://x|here>", "&lt;!channel&gt; &amp; &lt;https://x|here&gt;"),
        ("@all (bad@x): @here", "@\u200ball (bad@\u200bx): @\u200bhere"),
        ("asd/manifest [a]: [x](http://x)", "asd/manifest [a]: [x]\u200b(http://x)"),
        ("a\nb\x1b[31m\u202ec", r"a\nb\x1b[31m\u202ec"),
    ],
)
def test_what_a_name_holds_is_neither_a_mention_nor_a_link_nor_another_line_in_a_chat(webhook, text, shown):
    assert send(Alert(kind="test", text=text, facts={"partition": text})) is None
    assert webhook.received == [{"text": shown, "kind": "test", "partition": text}]


def test_a_text_of_megabytes_is_cut(webhook):
    assert send(Alert(kind="test", text="<" * 10_000_000)) is None
    assert len(webhook.received[0]["text"]) < 20_000


def test_a_text_that_utf_8_cannot_hold_is_delivered_all_the_same(webhook):
    assert send(Alert(kind="test", text="clip\udce9.mp4")) is None
    assert webhook.received[0]["text"] == "clip?.mp4"


def test_an_unreachable_webhook_does_not_fail_the_sensor(site, monkeypatch):
    monkeypatch.setenv("MUVAP_ALERT_WEBHOOK", "http://127.0.0.1:9/none")
    site.tell("alert_failed_runs", site.run("strict"))
