"""The pipeline: stages over a workspace, each re-runnable, cached and cleanly interruptible.

`convert` makes candidates and asks the gate about each; `validate` asks again with other data or
another reference; `measure`, `package` and `report` follow. `run` does what ``edgeserve.toml``
says. Every stage works on values (`edgeserve.types`) and leaves heavy work to worker processes
(`edgeserve.jobs`), so this process loads neither torch nor a runtime.
"""
