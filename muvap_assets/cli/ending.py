"""Ends the process some seconds after its first SIGTERM or Ctrl-C, whatever its threads are doing.

The usual way is an exception in the main thread, which lets what was staged be removed. It does not come where that thread is in
native code, and does not end where another one is, since leaving waits for it. What is left then is removed by the next run.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

PATIENCE_SEC = 3.0
"""How long the usual way may take."""


def end_at_first_signal() -> None:
    """Watch the signals of this process, which is called from its main thread, until it ends."""
    told, tells = socket.socketpair()
    tells.setblocking(False)
    # Written by the interpreter's own handler, which runs at once, also while no Python code does.
    signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(told, tells), name="signals", daemon=True).start()


def _watch(told: socket.socket, tells: socket.socket) -> None:
    while (number := told.recv(1)[0]) not in (signal.SIGINT, signal.SIGTERM):
        pass
    time.sleep(PATIENCE_SEC)
    os.write(
        sys.__stderr__.fileno() if sys.__stderr__ else 2,
        f"ended by {signal.Signals(number).name} while a thread was busy: what was published stands as it was, and what was staged "
        "is removed by the next run\n".encode(),
    )
    os._exit(128 + number)
