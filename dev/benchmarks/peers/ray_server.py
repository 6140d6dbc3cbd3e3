"""The model behind plain Ray Serve: `ray_server.py MODEL.onnx NAME PORT`. Bytes or JSON in."""

import json
import os
import sys
import threading

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})
class Onnx:
    def __init__(self, path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)

    async def __call__(self, request: Request):
        body = await request.body()
        if request.headers.get("content-type") == "application/json":
            said = json.loads(body)["inputs"][0]
            x = np.array(said["data"], np.float32).reshape(said["shape"])
            [y] = self.session.run(["y"], {"x": x})
            output = {"name": "y", "shape": list(y.shape), "datatype": "FP32"}
            return {"outputs": [output | {"data": y.reshape(-1).tolist()}]}
        x = np.frombuffer(body, np.float32).reshape(1, 3, 224, 224)
        [y] = self.session.run(["y"], {"x": x})
        return Response(y.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    path, _, port = sys.argv[1:]
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    serve.run(Onnx.bind(path), route_prefix="/")
    threading.Event().wait()
