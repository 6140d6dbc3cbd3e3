"""The real worker or fork server, to which one module of edgeserve is added: the tests' verbs.

Verbs lie in edgeserve's own modules and nowhere else, and no switch of the product opens that rule;
so the tests' verbs become such a module here, in the tests' own process.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    file = Path(__file__).with_name("verbs.py")
    spec = importlib.util.spec_from_file_location("edgeserve.verbs_for_tests", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)

    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
