"""Runs a worker process: `python worker.py --help`. The code is `everloop/worker.py`."""

from everloop.worker import run_and_exit

if __name__ == "__main__":
    run_and_exit()
