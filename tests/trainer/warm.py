"""A process with the heavy imports loaded that forks training ranks on demand, like the node agent's warm process.

Reads one JSON command a line: {"start": {"environments": [...], "log": path}} or {"wait": [pids]}. Answers likewise.
"""

import ctypes
import json
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1


def start(environments, log):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = str(listener.getsockname()[1])
    pids = []
    for environment in environments:
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ.update(environment, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            if environment["RANK"] == "0":
                os.environ["CIUIC_MASTER_FD"] = str(os.dup(listener.fileno()))
            listener.close()
            code = 70
            try:
                if "CIUIC_TEST_BEFORE" in environment:
                    exec(environment["CIUIC_TEST_BEFORE"], {})
                from trainer.main import main

                code = main()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        pids.append(pid)
    listener.close()
    return pids


def wait(pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def serve():
    import trainer.preload  # noqa: F401

    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    print(json.dumps({"threads": threads}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer = start(**command["start"]) if "start" in command else wait(command["wait"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
