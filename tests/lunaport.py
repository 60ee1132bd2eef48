"""A running `lunaport serve` for the scripts that judge it from outside.

Only what several scripts need: find the binary, start it on a free loopback port with given exports, wait until an
initiator can log in, end it. No test logic. Python's standard library only.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
IQN = "iqn.2026-01.org.example:judged"


class Failure(Exception):
    """Something outside the thing under judgement went wrong; the text is for a person."""


class Lunaport:
    """One target process with its own state directory. `exports` are the texts of `--export`, LUN 0 first; `settings` those
    of `--set`. `{key}` in an export becomes the path of a new key file."""

    def __init__(self, exports, log_path, settings=()):
        self.binary = binary()
        self.port = free_port()
        self.state = tempfile.mkdtemp(prefix="lunaport-state-")
        self.log_path = pathlib.Path(log_path)
        command = bound([self.binary, "serve", "--state-dir", self.state])
        command += ["--portal", f"127.0.0.1:{self.port}", "--target-name", IQN]
        for number, export in enumerate(exports):
            key = pathlib.Path(self.state) / f"{number}.key"
            if "{key}" in export:
                key.write_bytes(os.urandom(64))
            command += ["--export", export.replace("{key}", str(key))]
        for setting in settings:
            command += ["--set", setting]
        # Settings of the caller's shell must not leak into the target under judgement.
        env = {k: v for k, v in os.environ.items() if not k.startswith("LUNAPORT_")}
        with open(self.log_path, "wb") as log:
            log.write((" ".join(command) + "\n").encode())
            log.flush()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        self.pid = self.process.pid
        try:
            wait_for_login(self.url(0), self.exit_code)
        except Failure as failure:
            self.kill()
            raise Failure(f"{failure}; its output:\n{self.log()[-2000:]}") from None

    def url(self, lun):
        return f"iscsi://127.0.0.1:{self.port}/{IQN}/{lun}"

    def exit_code(self):
        """None while it runs."""
        return self.process.poll()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self, patience=15):
        """Ends it as an operator would. Returns what was wrong with that, or None."""
        early = self.process.poll()
        if early is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.kill()
                return f"still running {patience} s after SIGTERM"
        shutil.rmtree(self.state, ignore_errors=True)
        if early is not None:
            return f"ended by itself with exit code {early}"
        if self.process.returncode != 0:
            return f"exit code {self.process.returncode} after SIGTERM"
        return "panicked, see its log" if "panicked at" in self.log() else None

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)


def bound(command):
    """The same command, but it ends with the thread that runs it: whoever kills a test leaves nothing behind. What changes
    who it is, as in a new user namespace, undoes that: bind what comes behind it."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def binary():
    path = pathlib.Path(os.environ.get("LUNAPORT_BIN", ROOT / "target/release/lunaport")).resolve()
    if not os.access(path, os.X_OK):
        raise Failure(f"no program {path}: run `cargo build --release`, or name one with LUNAPORT_BIN")
    return str(path)


def need_tools(packages):
    """`packages` maps a program to the Debian package that brings it. Names all that are missing."""
    missing = {program: package for program, package in packages.items() if not shutil.which(program)}
    if missing:
        names = " ".join(sorted(set(missing.values())))
        raise Failure(f"missing: {', '.join(missing)} (Debian: apt-get install --no-install-recommends {names})")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_login(url, exit_code, patience=15):
    """Returns once libiscsi can log in and read INQUIRY data."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if exit_code() is not None:
            raise Failure(f"the target ended with exit code {exit_code()} before it served")
        try:
            answer = subprocess.run(["iscsi-inq", url], stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
            if answer.returncode == 0:
                return
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.02)
    raise Failure(f"nobody could log in to {url} within {patience} s")
