"""Gateways to be killed: each is forked from a process that has loaded what it needs.

`python -m tests.gateway.zygote FILE`, a configuration: a line on the input starts one; its number
is printed, and an empty line when it has ended.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import traceback
from pathlib import Path

from wick_graph.cli.gateway import serve
from wick_graph.config import load_config
from wick_graph.gateway.channels import http, telegram
from wick_graph.gateway.gateway import Gateway
from wick_graph.models import demo

_ = Gateway, demo, http, telegram  # with all that they load


def main(file: Path) -> None:
    gc.freeze()
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(serve(load_config(file)))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print(flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
