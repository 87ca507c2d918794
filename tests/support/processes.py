"""Checks run in another process: as a script, or as a user who is not root."""

import os
import subprocess
import sys
import traceback
import warnings


def as_ordinary_user(check):
    """Run `check` without root's right to write anywhere: as root, in a child process."""
    if os.geteuid() != 0:
        check()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # The warning about forks with threads.
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def script(text: str, *args, timeout: float = 120) -> str:
    """Return the output of a script that runs with this package in another process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # The interpreter warns of forks with threads, and some scripts are about them.
    command = [sys.executable, "-W", "ignore", "-c", text, *map(str, args)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
