"""A parse tree for each sentence, by a grammar."""
