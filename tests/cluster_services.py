"""PostgreSQL and Redis from the system's packages, started for a test on free ports, killed in it, and stopped with it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
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


@dataclass
class Server:
    """A server of a test: where it listens, and the process that does."""

    name: str
    address: str
    port: int
    command: list[str | Path]
    folder: Path
    user: dict[str, object] = field(default_factory=dict)

    def start(self):
        """Start it, once more after it was killed; it finds what it had stored."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self.user
            )
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended: {(self.folder / 'log').read_text()[-1000:]}")
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} does not answer")

    def kill(self):
        """End it as a power cut would, with all its children."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for process in (self.process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait(10)
        while any(Path(f"/proc/{child}/exe").exists() for child in children):
            time.sleep(0.05)


@contextmanager
def _running(server):
    try:
        server.start()
        yield server
    finally:
        stop(server.process)
        shutil.rmtree(server.folder, ignore_errors=True)


@contextmanager
def postgres():
    """A cluster of its own."""
    initdb, program = _program("initdb"), _program("postgres")
    # PostgreSQL refuses to run as root, and a test's own folder is closed to other users
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder, port = Path(tempfile.mkdtemp(prefix="muvap-pg-")), free_port()
    if user:
        shutil.chown(folder, "postgres", "postgres")
    create = [initdb, "-D", folder / "data", "-U", "muvap", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"]
    subprocess.run(create, check=True, capture_output=True, cwd=folder, **user)
    command = [program, "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    address = f"postgresql+psycopg2://muvap@127.0.0.1:{port}/postgres"
    with _running(Server("PostgreSQL", address, port, [*command, "-c", "fsync=off"], folder, user)) as server:
        yield server


@contextmanager
def redis():
    """A server of its own, which keeps its queues as the page on clusters asks for."""
    folder, port = Path(tempfile.mkdtemp(prefix="muvap-redis-")), free_port()
    command = [_program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    command += ["--save", "", "--appendonly", "yes"]
    with _running(Server("Redis", f"redis://127.0.0.1:{port}", port, command, folder)) as server:
        yield server


@contextmanager
def services():
    """Both."""
    with ExitStack() as stack:
        yield stack.enter_context(postgres()), stack.enter_context(redis())
