"""Location and rotation of an object in an image."""
