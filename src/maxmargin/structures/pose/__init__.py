"""Where an object is in an image, and how it is turned."""
