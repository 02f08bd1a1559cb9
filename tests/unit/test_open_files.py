from __future__ import annotations

import subprocess
import sys

SOURCE = """
import resource, subprocess
from stoker.open_files import raise_limit, with_original_limit
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
ask = ["/bin/sh", "-c", 'ulimit -Sn; ulimit -Hn; printf "%s\\n" "$@"', "sh", "two words", ""]
assert with_original_limit(ask) == ask
raise_limit()
raise_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
told = subprocess.run(with_original_limit(ask), capture_output=True, text=True, check=True).stdout
assert told == f"128\\n{hard}\\ntwo words\\n\\n", told
"""


def test_a_child_keeps_the_original_limit_and_its_arguments() -> None:
    subprocess.run([sys.executable, "-c", SOURCE], check=True)
