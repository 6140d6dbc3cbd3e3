"""The process of one attack: what to attack is its argument, what came back its output."""

from __future__ import annotations

import json
import resource
import sys

from dev.benchmarks.attacks.registry import Tally, load
from dev.benchmarks.attacks.runner import target_of


def main() -> int:
    """Attack, and print the tally as JSON."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attacks = load()
    name, target = target_of(json.loads(sys.argv[1]))
    tally = Tally()
    attacks[name].run(target, tally)
    print(json.dumps(vars(tally) | {"began": target.began}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
