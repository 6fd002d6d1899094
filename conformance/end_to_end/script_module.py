"""Scripts of this project as modules."""

import importlib.machinery
import importlib.util
import pathlib
import sys


def load(script):
    """The script as a module. It finds the modules next to it, as if it had been started."""
    path = pathlib.Path(script)
    sys.path.insert(0, str(path.parent))
    sys.dont_write_bytecode = True  # of the source
    name = path.name.replace("-", "_")
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
