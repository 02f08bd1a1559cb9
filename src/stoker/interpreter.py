"""Command lines for Stoker's own helper processes.

A helper is isolated (`python -I`): modules in PYTHONPATH or the working folder cannot replace Stoker's.
Stoker itself may have been found there, so its folder is passed on, and the user's site-packages if they
are in use.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# After the standard library, which no installed module may hide, and before everything else.
_BOOT = (
    "import sys,runpy;a=sys.argv;p=sys.path;r=a.pop(1).split(':');"
    "i=next((i for i,e in enumerate(p) if e.endswith('-packages')),len(p));"
    "p[i:i]=[e for e in r if e not in p];"
    "runpy.run_module(a.pop(1),run_name='__main__',alter_sys=True)"
)


def module_words(module: str, *arguments: str) -> list[str]:
    """Return the arguments of an interpreter that runs a module of Stoker."""
    return ["-I", "-c", _BOOT, os.pathsep.join(_roots()), module, *arguments]


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of Stoker with this interpreter."""
    return [sys.executable, *module_words(module, *arguments)]


def _roots() -> Sequence[str]:
    import site

    of_user = site.getusersitepackages()
    return [_ROOT, of_user] if of_user in sys.path and of_user != _ROOT else [_ROOT]
