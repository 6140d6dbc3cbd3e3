"""Texts to tensors: tokenization with the model's own tokenizer."""
