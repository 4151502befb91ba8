"""The head of each word of a sentence."""
