"""PostgreSQL and Redis from the system's packages, started for a test on free ports and stopped with it."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dagster_processes import stop
from skipping import skip_or_fail


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _program(name):
    found = shutil.which(name)
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found and not versions:
        skip_or_fail(f"{name} is not installed (Debian packages postgresql and redis-server)")
    return found or str(versions[-1])


def _answers(port, started, what):
    for _ in range(600):
        if started.poll() is not None:
            raise RuntimeError(f"{what} ended with {started.returncode}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"{what} does not answer")


@contextmanager
def postgres():
    """A cluster of its own; its address."""
    initdb, server = _program("initdb"), _program("postgres")
    # PostgreSQL refuses to run as root, and a test's own folder is closed to other users
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder, port = Path(tempfile.mkdtemp(prefix="muvap-pg-")), free_port()
    if user:
        shutil.chown(folder, "postgres", "postgres")
    create = [initdb, "-D", folder / "data", "-U", "muvap", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"]
    subprocess.run(create, check=True, capture_output=True, cwd=folder, **user)
    command = [server, "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    command += ["-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True, **user)
    try:
        _answers(port, started, "PostgreSQL")
        yield f"postgresql+psycopg2://muvap@127.0.0.1:{port}/postgres"
    finally:
        stop(started)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis():
    """A server of its own; its address without a database."""
    folder, port = tempfile.mkdtemp(prefix="muvap-redis-"), free_port()
    command = [_program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _answers(port, started, "Redis")
        yield f"redis://127.0.0.1:{port}"
    finally:
        stop(started)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def services():
    """Both, as the environment of ``deploy/cluster/dagster.yaml`` names them."""
    with ExitStack() as stack:
        database, broker = stack.enter_context(postgres()), stack.enter_context(redis())
        yield {
            "MUVAP_PG_URL": database,
            "MUVAP_CELERY_BROKER": f"{broker}/0",
            "MUVAP_CELERY_RESULTS": f"{broker}/1",
        }
