"""Classification of images, texts and sounds: the best class."""
