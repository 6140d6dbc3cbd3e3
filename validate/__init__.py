"""The validation gate: does an artifact decide as the server does, and would a change be seen.

The verbs that workers run are `edgeserve.validate.collect.collect_answers` (the reference, once),
`edgeserve.validate.judge.judge` (one artifact) and `edgeserve.validate.golden.make.make_golden`;
`edgeserve.api` and the command line call them. The rules stand in ``docs/explanation/verdicts.md``.
"""
