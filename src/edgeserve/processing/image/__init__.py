"""Images to tensors: decoding, resizing and cropping, and the tensor that the model takes."""
