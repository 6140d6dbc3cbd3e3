"""The model behind LitServe, by upload or JSON: `litserve_server.py MODEL.onnx KIND PORT`."""

import sys

import litserve
import numpy as np
import onnxruntime
from fastapi import Response


class Onnx(litserve.LitAPI):
    def __init__(self, path, shape):
        super().__init__()
        self.path, self.shape = path, shape

    def setup(self, device):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.path, options)

    def decode_request(self, request):
        return np.frombuffer(request["x"].file.read(), np.float32).reshape(self.shape)

    def predict(self, x):
        return self.session.run(["y"], {"x": x})[0]

    def encode_response(self, y):
        return Response(y.tobytes(), media_type="application/octet-stream")


class OnnxJson(Onnx):
    def decode_request(self, request):
        return np.array(request["inputs"][0]["data"], np.float32).reshape(self.shape)

    def encode_response(self, y):
        output = {"name": "y", "shape": list(y.shape), "datatype": "FP32"}
        return {"outputs": [output | {"data": y.reshape(-1).tolist()}]}


if __name__ == "__main__":
    path, kind, port = sys.argv[1:]
    made = {"binary": Onnx, "json": OnnxJson}[kind]
    api = made(path, (1, 3, 224, 224))
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False, log_level="error")
