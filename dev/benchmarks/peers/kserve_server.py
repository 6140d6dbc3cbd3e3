"""The model behind KServe's Python server: `kserve_server.py MODEL.onnx NAME PORT`."""

import sys
import uuid

import kserve
import onnxruntime


class Onnx(kserve.Model):
    def __init__(self, name, path):
        super().__init__(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        x = payload.inputs[0].as_numpy()
        [y] = self.session.run(["y"], {"x": x})
        output = kserve.InferOutput("y", list(y.shape), "FP32")
        binary = bool(payload.use_binary_outputs)
        output.set_data_from_numpy(y, binary_data=binary)
        answer = payload.id or uuid.uuid4().hex
        return kserve.InferResponse(answer, self.name, [output], use_binary_outputs=binary)


if __name__ == "__main__":
    path, name, port = sys.argv[1:]
    server = kserve.ModelServer(
        http_port=int(port), workers=1, enable_grpc=False, access_log_format=None
    )
    server.start([Onnx(name, path)])
